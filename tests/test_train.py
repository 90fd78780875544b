"""The command line, as a user meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

from minerva.checkpoint import load

FAST = (
    "env=probe/continuous_action",
    "logger=[]",
    "trainer.total_steps=2560",
    "trainer.logs=10",
    "trainer.eval_episodes=2",
)
CLOCKS = ["charts/SPS", "time/env", "time/rollout", "time/update", "time/eval", "time/save"]


def train(python, run: Path, *overrides: str, **env: str):
    return python("train.py", *FAST, f"hydra.run.dir={run}", *overrides, **env)


def parameters(run: Path) -> dict[str, torch.Tensor]:
    return load(run / "checkpoints" / "last.pt")["state"]["algo"]["network"]


def rows(run: Path) -> pd.DataFrame:
    return pd.read_csv(run / "metrics.csv").drop(columns=CLOCKS)


def assert_same(one: Path, other: Path) -> None:
    a, b = parameters(one), parameters(other)
    assert a.keys() == b.keys()
    assert all(torch.equal(a[name], b[name]) for name in a)
    pd.testing.assert_frame_equal(rows(one), rows(other), check_exact=True)


def test_a_run_leaves_what_it_promises(python, tmp_path: Path) -> None:
    done = train(python, tmp_path / "run", "logger=[tensorboard]")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "run"
    facts = json.loads((run / "run.json").read_text())
    metrics = pd.read_csv(run / "metrics.csv")
    assert facts["status"] == "finished"
    assert facts["score"] == metrics["eval/return_mean"].iloc[-1]
    assert facts["start"] <= facts["end"]
    assert "train.py" in facts["command"]
    assert facts["packages"]["torch"]
    assert len(metrics) == 11  # the first rollout, and then ten times
    assert metrics["step"].tolist() == sorted(set(metrics["step"]))
    assert metrics["step"].iloc[-1] == 2560
    expected = """charts/learning_rate charts/SPS losses/policy_loss losses/value_loss losses/entropy losses/approx_kl
        losses/old_approx_kl losses/clipfrac losses/explained_variance train/episode_return train/episode_length
        eval/return_mean eval/return_std eval/return_min eval/return_max eval/length_mean"""
    assert set(expected.split()) <= set(metrics.columns)
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.pt", "last.pt", "previous.pt"}
    assert (run / "freeze.txt").exists()
    assert list(run.glob("events.out.tfevents*"))
    assert (run / ".hydra" / "config.yaml").exists()
    assert "python scripts/evaluate.py" in done.stderr
    assert "\r" not in done.stderr, "no bar where there is no terminal"


def test_equal_seeds_give_equal_runs_and_others_do_not(python, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        assert train(python, tmp_path / name, f"seed={seed}").returncode == 0
    assert_same(tmp_path / "a", tmp_path / "b")
    assert not torch.equal(
        parameters(tmp_path / "a")["policy_head.mean.weight"], parameters(tmp_path / "c")["policy_head.mean.weight"]
    )


@pytest.mark.parametrize(
    "extra",
    [
        (),
        ("env=gymnasium/CartPole-v1", "reward.scale=true"),
        ("algo=vmpo", "algo.target_period=3"),
        (
            "algo=vmpo",
            "algo.temperature=gradient",
            "env=gymnasium/CartPole-v1",
            "env.num_envs=8",
            "algo.num_steps=16",
            "algo.minibatch_size=64",
        ),
        (
            "env=dm_control/cartpole/swingup",
            "env.num_envs=4",
            "algo.num_steps=16",
            "algo.minibatch_size=32",
            "env.max_episode_steps=30",
            *(["compile=true"] if shutil.which("g++") else []),
        ),
    ],
)
def test_a_run_stopped_halfway_ends_like_one_that_was_not(python, tmp_path: Path, extra: tuple[str, ...]) -> None:
    # Stopped by a driver that makes an update fail, for the schedule must be that of the whole run.
    whole, halves, extra = tmp_path / "whole", tmp_path / "halves", (*extra, "trainer.final_eval_episodes=2")
    assert train(python, whole, *extra).returncode == 0
    stopped = python(Path(__file__).parent / "stop_at.py", "1280", *FAST, f"hydra.run.dir={halves}", *extra)
    assert stopped.returncode == 1, stopped.stderr
    assert json.loads((halves / "run.json").read_text())["status"] == "failed"
    assert load(halves / "checkpoints" / "last.pt")["step"] < 2560
    assert train(python, halves, *extra).returncode == 0
    assert json.loads((halves / "run.json").read_text())["status"] == "finished"
    assert_same(whole, halves)


def test_a_saved_configuration_repeats_its_run(python, tmp_path: Path) -> None:
    assert train(python, tmp_path / "a", "seed=5").returncode == 0
    again = python("train.py", "-cp", tmp_path / "a" / ".hydra", "-cn", "config", f"hydra.run.dir={tmp_path / 'b'}")
    assert again.returncode == 0, again.stderr
    assert_same(tmp_path / "a", tmp_path / "b")


def test_evaluate_scores_a_run_as_it_scored_itself(python, tmp_path: Path) -> None:
    assert train(python, tmp_path / "run").returncode == 0
    score = json.loads((tmp_path / "run" / "run.json").read_text())["score"]
    shown = python("scripts/evaluate.py", tmp_path / "run", "--episodes", "20")
    assert shown.returncode == 0, shown.stderr
    assert f"return {score:.1f} " in shown.stdout
    missing = python("scripts/evaluate.py", tmp_path / "nowhere")
    assert missing.returncode == 1
    assert missing.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "args", [("--cfg", "job"), ("--help",), ("-sc", "query=bash"), ("algo.gamma=1.5",), ("algo=pppo",)]
)
def test_what_needs_no_training_imports_no_torch(python, args: tuple[str, ...]) -> None:
    code = f"import sys, runpy; sys.argv = ['train.py', *{args!r}]\ntry: runpy.run_path('train.py', run_name='__main__')\nexcept SystemExit: pass\nassert 'torch' not in sys.modules"
    done = python("-c", code, COMP_LINE="python train.py algo=", COMP_POINT="21")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["algo.gamma=1.5"], "algo.gamma=1.5: allowed is from 0 to 1"),
        (["algo.gamma=abc"], "algo.gamma: Value 'abc' of type 'str' could not be converted to Float"),
        (["algo.gama=0.9"], "algo.gama: there is no such key; nearest: algo.gamma"),
        (["+algo.gama=0.9"], "algo.gama: "),
        (["algo=pppo"], "algo=pppo: there is no such choice; nearest: ppo"),
        (
            ["env=dm_control/cheeta/run"],
            "env=dm_control/cheeta/run: there is no such choice; nearest: dm_control/cheetah/run",
        ),
        (["algo.minibatch_size=0"], "algo.minibatch_size=0: allowed is at least 1"),
        (["trainer.total_steps=1"], "trainer.total_steps=1: allowed is at least one rollout"),
        (["device=cuda:7"], "device=cuda:7: there is no such device here; allowed is cpu"),
        (["env=gymnasium/any", "env.id=CartPoole-v1"], "env.id=CartPoole-v1: cannot be made"),
        (
            ["env=gymnasium/any", "env.id=tests.envs.odd:odd/Graph-v0"],
            "env.id=tests.envs.odd:odd/Graph-v0: observation space Graph is not supported",
        ),
        (["env=gymnasium/any", "env.id=tests.envs.odd:odd/Text-v0"], "env.id=tests.envs.odd:odd/Text-v0: action space"),
        (["algo.gamma=["], "algo.gamma=[: cannot be read as KEY=VALUE: no viable alternative"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(python, tmp_path: Path, overrides: list[str], message: str) -> None:
    done = python("train.py", f"hydra.run.dir={tmp_path / 'run'}", *overrides, PYTHONPATH=".")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert not done.stdout
    assert not (tmp_path / "run").exists()


def test_the_traceback_comes_back_on_request(python, tmp_path: Path) -> None:
    done = python("train.py", f"hydra.run.dir={tmp_path / 'run'}", "algo.gamma=1.5", HYDRA_FULL_ERROR="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_nan_from_an_environment_saves_what_there_is(python, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = train(
        python,
        run,
        "env=gymnasium/any",
        "env.id=tests.envs.odd:odd/Nan-v0",
        "env.num_envs=2",
        "algo.minibatch_size=32",
        "algo.num_steps=16",
        "trainer.evaluations=1",
        PYTHONPATH=".",
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: observation of environment 0 is nan at step ")
    assert load(run / "checkpoints" / "failed.pt")["step"] > 0
    assert load(run / "checkpoints" / "failed_batch.pt")["batch"]["obs"].isnan().any()
    facts = json.loads((run / "run.json").read_text())
    assert facts["status"] == "failed"
    assert facts["reason"].startswith("observation of environment 0 is nan")


def test_an_episode_that_never_ends_does_not_hold_up_the_run(python, tmp_path: Path) -> None:
    endless = ("env=gymnasium/any", "env.id=tests.envs.odd:odd/Endless-v0", "env.num_envs=2", "algo.minibatch_size=32")
    done = train(
        python,
        tmp_path / "run",
        *endless,
        "algo.num_steps=16",
        "trainer.max_eval_steps=30",
        "trainer.evaluations=2",
        PYTHONPATH=".",
    )
    assert done.returncode == 0, done.stderr
    assert (rows(tmp_path / "run")["eval/length_mean"].dropna() == 30).all()


def test_nan_from_an_environment_is_skipped_and_counted_if_so_wished(python, tmp_path: Path) -> None:
    burst = ("env=gymnasium/any", "env.id=tests.envs.odd:odd/Burst-v0", "env.num_envs=4", "algo.num_steps=16")
    done = train(python, tmp_path / "run", *burst, "algo.minibatch_size=32", "trainer.non_finite=skip", PYTHONPATH=".")
    assert done.returncode == 0, done.stderr
    assert "reward of environment 0 is nan at step " in done.stdout
    assert (
        done.stdout.count("the return of an evaluation is nan: the environment is at fault: there is no score at step ")
        >= 1
    )
    metrics = rows(tmp_path / "run")
    assert metrics["charts/skipped_updates"].iloc[-1] == 1, "new episodes were begun, and the nans are over"
    assert metrics["step"].iloc[-1] == 2560
    assert load(tmp_path / "run" / "checkpoints" / "failed_batch.pt")["batch"]["reward"].isnan().any()


DIVERGING = ("algo.learning_rate=1e30", "algo.max_grad_norm=null")


def test_learning_that_diverges_says_so_and_keeps_the_last_checkpoint(python, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = train(python, run, *DIVERGING)
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("error: ")
    assert "is not finite, in the update after step " in said
    assert "learning diverged" in said
    assert json.loads((run / "run.json").read_text())["status"] == "failed"
    failed = load(run / "checkpoints" / "failed_batch.pt")
    assert failed["reason"] in said
    assert failed["batch"]["reward"].numel() > 0
    if (run / "checkpoints" / "last.pt").exists():
        assert all(tensor.isfinite().all() for tensor in parameters(run).values())


def test_updates_that_diverge_are_taken_back_and_counted_if_so_wished(python, tmp_path: Path) -> None:
    done = train(python, tmp_path / "run", *DIVERGING, "trainer.non_finite=skip")
    assert done.returncode == 0, done.stderr
    assert rows(tmp_path / "run")["charts/skipped_updates"].iloc[-1] > 0
    assert all(tensor.isfinite().all() for tensor in parameters(tmp_path / "run").values())


@pytest.mark.parametrize("override", ["logger.tensorboard=null", "reward=5", "algo._target_=os.system", "env=null"])
def test_a_group_that_is_none_is_one_line(python, tmp_path: Path, override: str) -> None:
    done = python("train.py", f"hydra.run.dir={tmp_path / 'run'}", override)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()
