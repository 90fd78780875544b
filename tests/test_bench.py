"""The benchmark runs; what it says is not looked at here, for a machine that tests is busy."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
import bench

TINY = {
    "PPO": bench.Setting("PPO", 2, 32, 1, 16, (8, 8)),
    "V-MPO": bench.Setting("V-MPO", 1, 64, 2, None, (8, 8), algo="vmpo"),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["PPO", "V-MPO"])
def test_a_setting_is_measured(name, tmp_path, monkeypatch, capsys):
    if name == "PPO" and not find_spec("stable_baselines3"):
        pytest.skip("Stable-Baselines3 is not installed")
    monkeypatch.setattr(bench, "SETTINGS", TINY)
    monkeypatch.setattr(
        sys,
        "argv",
        ["bench.py", "--settings", name, "--repeats", "1", "--seconds", "0.1", "--json", str(tmp_path / "x")],
    )
    bench.main()
    result = json.loads((tmp_path / "x").read_text())[name]
    peer = result["sb3_sps" if name == "PPO" else "plain_sps"]
    assert result["ratio"] == pytest.approx(result["minerva_sps"] / peer)
    for key in ("env_us", "policy_us", "update_us", "startup_s", "compile_s", "memory_mb"):
        assert result[key] > 0, key
    assert f"**{result['ratio']:.1f}**" in capsys.readouterr().out


def test_the_time_to_a_return_is_until_an_evaluation_is_as_good(tmp_path):
    assert 0 < bench.seconds_to("probe/continuous_action", -1e9, 0, str(tmp_path)) < 100


def test_what_saving_costs_is_a_share_of_the_run(monkeypatch):
    monkeypatch.setattr(bench, "ENV", "probe/continuous_action")
    cost = bench.saving("trainer.total_steps=10_000", "logger=[]", "compile=false")
    assert 0 < cost["share"] == cost["save_s"] / cost["total_s"] < 1
    assert cost["checkpoint_mb"] > 0


def test_an_unknown_setting_is_named(python):
    result = python("scripts/bench.py", "--settings", "S1,S9")
    assert result.returncode == 2
    assert "--settings S9: allowed are S1, S2, S3, V" in result.stderr
