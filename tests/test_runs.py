"""Run directories as data."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pandas as pd
import pytest

import minerva
from minerva.errors import UserError
from minerva.runs import filtered, read_runs
from minerva.sweeps.folder import Job, SweepFolder
from tests.report.runs import make_run


def test_a_row_for_each_row_of_each_run(tmp_path):
    make_run(tmp_path / "a", seed=3, score=50.0)
    make_run(tmp_path / "deep" / "b", algo="vmpo.VMPO", rows=4, algo__gamma=0.9, network__policy_layers=[4])
    table = minerva.load_runs(tmp_path)
    assert len(table) == 14
    assert [*table.columns[:7]] == ["run", "status", "algo", "env", "seed", "algo.gamma", "network.policy_layers"]
    one, other = (table[table.run == str(tmp_path / name)] for name in ("a", "deep/b"))
    assert {*one.algo} == {"PPO"}
    assert {*other.algo} == {"VMPO"}
    assert {*one.seed} == {3}
    assert {*other["network.policy_layers"]} == {"[4]"}
    assert {*table.env} == {"dm_control/cheetah-run"}
    pd.testing.assert_frame_equal(
        one.loc[:, "step":].reset_index(drop=True), pd.read_csv(tmp_path / "a" / "metrics.csv"), check_dtype=False
    )
    assert len(minerva.load_runs(tmp_path / "a")) == 10


def test_floats_are_read_as_they_were_written(tmp_path):
    make_run(tmp_path / "a", algo__gamma=1e-5, algo__learning_rate=1e16, env__num_envs=-3)
    (tmp_path / "b" / ".hydra").mkdir(parents=True)
    (tmp_path / "b" / ".hydra" / "config.yaml").write_text(
        "{x: 1e-5, y: .inf, z: 3, version: 1.2.3, t: true, n: null, s: '1e-5'}"
    )
    a, b = read_runs(tmp_path)
    assert (a.config["algo.gamma"], a.config["algo.learning_rate"], a.config["env.num_envs"]) == (1e-5, 1e16, -3)
    assert b.config == {"x": 1e-5, "y": np.inf, "z": 3, "version": "1.2.3", "t": True, "n": None, "s": "1e-5"}


def test_what_is_not_finished_is_named(tmp_path):
    make_run(tmp_path / "failed", status="failed", score=None)
    broken = make_run(tmp_path / "unreadable")
    (broken / ".hydra" / "config.yaml").write_text("a: [1")
    gone = make_run(tmp_path / "gone", status="running", score=None)
    facts = json.loads((gone / "run.json").read_text())
    (gone / "run.json").write_text(json.dumps(facts | {"host": os.uname().nodename}))
    none = make_run(tmp_path / "none")
    (none / "metrics.csv").unlink()
    (none / "run.json").write_text("[1]")
    found = {record.path.name: record for record in read_runs(tmp_path)}
    assert (found["failed"].status, found["failed"].reason) == ("failed", "RuntimeError: no")
    assert found["gone"].status == "failed"
    assert "ended without a word" in found["gone"].reason
    assert "config.yaml: cannot be read" in found["unreadable"].reason
    assert (found["none"].status, found["none"].score, len(found["none"].metrics)) == ("queued", None, 0)


def test_a_row_that_was_cut_short_is_not_counted(tmp_path):
    run = make_run(tmp_path / "a")
    with open(run / "metrics.csv", "a") as file:
        file.write("1100,110,250,-1")  # of -1234.5
    assert read_runs(run)[0].metrics.step.tolist() == [*range(100, 1001, 100)]
    with open(run / "metrics.csv", "a") as file:
        file.write(",1,1,1,1,9\n")
    assert read_runs(run)[0].metrics.step.tolist() == [*range(100, 1001, 100)], "of too many fields"


def test_jobs_of_a_sweep_that_have_not_begun_and_those_that_were_put_aside(tmp_path):
    sweep = tmp_path / "sweep"
    make_run(sweep / "seed=0")
    shutil.copytree(sweep / "seed=0", sweep / "seed=0.old1")
    SweepFolder(sweep).begin([], "local", [Job(f"seed={i}", [], {"seed": i, "env.id": "X-v1"}) for i in (0, 1)])
    found = read_runs(tmp_path)
    assert [(record.path.name, record.status, record.seed) for record in found] == [
        ("seed=0", "finished", 0),
        ("seed=1", "queued", 1),
    ]


def test_nothing_is_executed(tmp_path):
    run = make_run(tmp_path / "a")
    (run / ".hydra" / "config.yaml").write_text(
        "a: !!python/object/apply:os.system ['touch %s']" % (tmp_path / "owned")
    )
    assert "cannot be read" in read_runs(run)[0].reason
    assert not (tmp_path / "owned").exists()


def test_filters(tmp_path):
    for i, gamma in enumerate([0.9, 0.99, 0.99]):
        make_run(tmp_path / str(i), seed=i, algo__gamma=gamma, network__policy_layers=[8] * (i + 1))
    records = read_runs(tmp_path)

    def seeds(*filters: str) -> list[int]:
        return [record.seed for record in filtered(records, filters)]

    assert seeds() == [0, 1, 2]
    assert seeds("algo.gamma=0.99") == seeds("algo.gamma=9.9e-1") == [1, 2]
    assert seeds("algo.gamma=0.99", "seed=2") == [2]
    assert seeds("network.policy_layers=[8,8]") == [1]
    assert seeds("algo=ppo", "env=dm_control/cheetah-run", "status=finished", "network.backbone=null") == [0, 1, 2]
    make_run(tmp_path / "true", seed=7, env__num_envs=True, network__extra=None)
    records = read_runs(tmp_path)
    assert seeds("env.num_envs=true") == [7]
    assert seeds("network.extra=null") == [7], "those that have it"
    with pytest.raises(UserError, match=r"^seed=\[: cannot be read: "):
        seeds("seed=[")
    with pytest.raises(UserError, match=r"algo.gama=1: no run has algo.gama; nearest: algo.gamma"):
        seeds("algo.gama=1")
    with pytest.raises(UserError, match=r"algo.gamma=0.5: no run has it; allowed is one of 0.9, 0.99"):
        seeds("algo.gamma=0.5")


def test_links_are_followed_once(tmp_path):
    make_run(tmp_path / "elsewhere" / "a")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "outputs")
    assert [record.path.name for record in read_runs(tmp_path / "outputs")] == ["a"]


def test_all_that_differs_is_a_column(tmp_path):
    for i in range(2):
        make_run(tmp_path / str(i), seed=i, device=["cpu", "cuda"][i])
    table = minerva.load_runs(tmp_path)
    assert table.groupby("run", observed=True)["device"].first().tolist() == ["cpu", "cuda"]


def test_where_there_are_no_runs(tmp_path):
    with pytest.raises(UserError, match=r"there are no runs in it; python train.py"):
        minerva.load_runs(tmp_path)
    with pytest.raises(UserError, match="nowhere: allowed is a directory"):
        minerva.load_runs(tmp_path / "nowhere")
