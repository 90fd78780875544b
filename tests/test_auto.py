"""What ``auto`` stands for."""

from __future__ import annotations

import os

import pytest
from omegaconf import DictConfig, OmegaConf

from minerva import auto, fidelity
from minerva.errors import UserError


def config(**changes) -> DictConfig:
    cfg = OmegaConf.create(
        {
            "device": "cpu",
            "threads": "auto",
            "compile": "auto",
            "trainer": {"total_steps": 1_000_000},
            "algo": {"num_steps": 128, "update_epochs": 10, "minibatch_size": 512},
            "network": {"policy_layers": [128, 128], "value_layers": [128, 128]},
            "env": {
                "id": "dm_control/cheetah-run-v0",
                "backend": "auto",
                "threads": "auto",
                "kwargs": {},
                "num_envs": 32,
                "pixels": False,
                "action_repeat": 1,
                "frame_stack": "auto",
            },
        }
    )
    for key, value in changes.items():
        OmegaConf.update(cfg, key.replace("__", "."), value)
    auto.settle(cfg)
    return cfg


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    (tmp_path / "g++").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 2), (16, 8)])
def test_envpool_s_threads_follow_the_cores(monkeypatch, cores, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert config().env.threads == expected


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (2, 2), (16, 2)])
def test_torch_gets_two_threads_where_there_is_work_for_them(monkeypatch, cores, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert config().threads == expected
    assert config(algo__minibatch_size=64, network__policy_layers=[64, 64]).threads == 1
    assert config(algo__minibatch_size=None, network__policy_layers=[64, 64]).threads == expected


@pytest.mark.usefixtures("compiler")
def test_what_is_given_stays():
    cfg = config(threads=3, compile=False, env__backend="gymnasium", env__threads=5)
    assert (cfg.threads, cfg.compile, cfg.env.backend, cfg.env.threads) == (3, False, "gymnasium", 5)


@pytest.mark.usefixtures("compiler")
def test_short_runs_are_not_compiled():
    assert config().compile is True
    assert config(trainer__total_steps=100_000).compile is False
    assert config(device="cuda").compile is False


def test_without_a_compiler_nothing_is_compiled(monkeypatch, caplog):
    monkeypatch.setenv("PATH", "")
    assert config().compile is False
    assert "there is no C++ compiler" in caplog.text
    with pytest.raises(UserError, match=r"compile=true: there is no C\+\+ compiler .* allowed is false"):
        config(compile=True)


def test_a_gpu_needs_no_compiler(monkeypatch):
    monkeypatch.setattr(auto.shutil, "which", lambda name: None)
    assert config(compile=True, device="cuda").compile is True


def test_the_backend_is_the_fastest_that_is_the_same(monkeypatch):
    monkeypatch.setattr(fidelity, "find_spec", lambda name: object())
    assert config().env.backend == "envpool"
    assert config(env__num_envs=1).env.backend == "gymnasium"
    assert config(env__num_envs=4).env.backend == "gymnasium"  # cheetah's steps are quick
    assert config(env__num_envs=4, env__id="dm_control/walker-walk-v0").env.backend == "envpool"
    assert config(env__kwargs={"camera": 1}).env.backend == "gymnasium"
    assert config(env__id="dm_control/finger-spin-v0").env.backend == "gymnasium"
    assert config(env__id="Nothing-v0").env.backend == "gymnasium"
    monkeypatch.setattr(fidelity, "find_spec", lambda name: None)
    assert config().env.backend == "gymnasium"


def test_going_on_is_as_it_was_before(monkeypatch):
    before = config(threads=1, compile=False, env__backend="gymnasium", env__threads=5)
    monkeypatch.setattr(fidelity, "find_spec", lambda name: object())
    cfg = OmegaConf.merge(before, {"threads": "auto", "compile": "auto", "env": {"backend": "auto", "threads": "auto"}})
    auto.settle(cfg, before)
    assert cfg == before
    given = OmegaConf.merge(cfg, {"threads": 2})
    auto.settle(given, before)
    assert given.threads == 2


def test_observations_are_stacked_for_who_remembers_and_for_pictures():
    assert config().env.frame_stack == 1
    assert config(env__pixels=True).env.frame_stack == 3
    assert config(network__backbone={"seq_len": 16}).env.frame_stack == 16
    assert config(env__frame_stack=4, env__pixels=True).env.frame_stack == 4


@pytest.mark.parametrize("changes", [{"env__pixels": True}, {"env__action_repeat": 2}])
def test_what_envpool_cannot_do_is_gymnasiums(changes):
    assert config(**changes).env.backend == "gymnasium"
