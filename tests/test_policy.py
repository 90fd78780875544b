"""``minerva.load_policy``."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import flatten

import minerva
from minerva.errors import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    import subprocess
    import sys

    from tests.conftest import ROOT

    directory = tmp_path_factory.mktemp("run")
    overrides = [
        "env=gymnasium/Pendulum-v1",
        "env.num_envs=2",
        "algo.minibatch_size=64",
        "logger=[]",
        "trainer.total_steps=640",
        "trainer.evaluations=1",
    ]
    subprocess.run(
        [sys.executable, "train.py", *overrides, f"hydra.run.dir={directory}"], cwd=ROOT, check=True, timeout=100
    )
    return directory


def test_actions_are_in_bounds_for_one_observation_and_for_many(run):
    policy = minerva.load_policy(run)
    env = gymnasium.make("Pendulum-v1")
    obs, _ = env.reset(seed=0)
    one = policy.predict(obs)
    assert env.action_space.contains(one)
    many = policy.predict(np.stack([obs, obs, -obs]))
    assert many.shape == (3, 1)
    np.testing.assert_allclose(many[:2], [one, one], rtol=1e-6)
    assert policy.predict(obs).tolist() == one.tolist(), "deterministic"
    samples = {float(policy.predict(obs, deterministic=False)[0]) for _ in range(5)}
    assert len(samples) > 1
    assert all(-2 <= sample <= 2 for sample in samples)
    assert flatten(env.observation_space, obs).shape == policy.spec.obs_shape


def test_it_knows_its_shape_and_age(run):
    policy = minerva.load_policy(run, checkpoint="last")
    assert policy.step == 512
    with pytest.raises(ValueError, match=r"obs of shape \(4,\): allowed is \(3,\)"):
        policy.predict(np.zeros(4))


def test_no_run_no_policy(tmp_path):
    with pytest.raises(UserError, match="there is no such checkpoint"):
        minerva.load_policy(tmp_path)
