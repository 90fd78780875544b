"""The sweeps in conf/sweep/."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from dm_control import suite
from hydra import compose as hydra_compose

from minerva import config
from minerva.explain import CONF
from minerva.sweeps.folder import job_name
from tests.test_config import _hydra  # noqa: F401  # a fixture for all here

GRIDS = {
    "seeds": 5,
    "dm_control_benchmark": 28 * 5 * 2,
    "ppo_grid": 27,
    "vmpo_grid": 27,
    "comparison": 24,
    "results": 80,
}


def params(name: str) -> dict[str, list[str]]:
    cfg = hydra_compose("train", [f"sweep={name}"], return_hydra_config=True)
    assert cfg.hydra.mode.name == "MULTIRUN"
    return {
        key: [value.strip() for value in str(values).split(",")] for key, values in cfg.hydra.sweeper.params.items()
    }


@pytest.mark.parametrize("name", sorted(GRIDS))
def test_a_grid_is_as_large_as_it_says_and_its_values_are_allowed(name):
    values = params(name)
    assert math.prod(map(len, values.values())) == GRIDS[name]
    for key, choices in values.items():
        for choice in choices:
            algo = [f"algo={values['algo'][0]}"] if key != "algo" and "algo" in values else []
            config.check(hydra_compose("train", [*algo, f"{key}={choice}"]))


def test_all_sweeps_are_known_here():
    assert {path.stem for path in Path(CONF / "sweep").glob("*.yaml")} == {*GRIDS, "optuna_ppo", "optuna_vmpo"}


def test_the_benchmark_is_dm_control_s():
    ours = [task.split("/")[1:] for task in params("dm_control_benchmark")["env"]]
    assert ours == [list(task) for task in suite.BENCHMARKING]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["seed=0", "algo=ppo"], "algo=ppo,seed=0"),
        (["algo=ppo", "seed=0"], "algo=ppo,seed=0"),
        (
            ["algo.gamma=0.9", "seed=0", "env=dm_control/cheetah/run"],
            "env=dm_control-cheetah-run,seed=0,algo.gamma=0.9",
        ),
        ([], "job"),
    ],
)
def test_a_directory_is_named_after_the_overrides(overrides, name):
    assert job_name(overrides) == name


def test_names_are_unique_where_characters_are_lost_or_there_are_too_many():
    names = [job_name([f"env.id=a{mark}b"]) for mark in ":@ é"] + [job_name([f"x={'y' * 300}{end}"]) for end in "ab"]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 150 and name.isascii() for name in names)
