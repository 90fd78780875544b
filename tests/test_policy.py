"""``minerva.load_policy``."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import flatten

import minerva
from minerva.envs.gymnasium import GymnasiumVectorEnv
from minerva.errors import UserError
from minerva.policy import Policy
from tests.conftest import actor_critic


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


def made(observe: str) -> Policy:
    """A policy that has learned nothing, of actions 5 and 6."""
    env = GymnasiumVectorEnv(
        id="tests.envs.shaped:test/Shaped-v0",
        kwargs={"observe": observe, "act": "discrete"},
        num_envs=1,
        max_episode_steps=None,
        stagger=0,
    )
    spec = dataclasses.replace(env.spec, action=spaces.Discrete(2, start=5))
    return Policy(algo=SimpleNamespace(actor=actor_critic(spec)), spec=spec, step=0)


def test_observations_are_taken_by_name_and_actions_are_the_environments():
    policy = made("both")
    rng = np.random.default_rng(0)
    batch = {
        "nothing": np.zeros(3),
        "picture": rng.integers(256, size=(40, 12, 10, 1), dtype=np.uint8),
        "way": rng.normal(size=(40, 1)).astype(np.float32),
    }
    flat = np.concatenate([batch["way"], batch["picture"].reshape(40, -1)], axis=1)
    obs = torch.as_tensor(flat, dtype=torch.float32)
    with torch.no_grad():  # half of them take each action
        logits = policy.algo.actor.policy(obs).params
        middle = (logits[:, 1] - logits[:, 0]).sort().values[19:21].mean()
        policy.algo.actor.policy_head.logits.bias[0] += middle
    expected = 5 + policy.algo.actor.act(obs).action.numpy()
    assert set(expected) == {5, 6}
    assert policy.predict(batch).tolist() == expected.tolist()
    each = [{name: batch[name][i] for name in ("way", "picture")} for i in range(40)]
    assert [int(policy.predict(obs)) for obs in each] == expected.tolist()
    assert {*policy.predict(batch, deterministic=False)} == {5, 6}
    with pytest.raises(ValueError, match="obs with way: allowed is way, picture"):
        policy.predict({"way": np.zeros(1)})
    with pytest.raises(ValueError, match=r"obs\['picture'\] of shape \(1, 12, 10\): allowed is \(12, 10, 1\)"):
        policy.predict({"way": np.zeros(1), "picture": np.zeros((1, 12, 10))})
    with pytest.raises(ValueError, match=r"obs with way: allowed is an array of the shape \(1,\)"):
        made("vector").predict({"way": np.zeros(1)})


def test_no_run_no_policy(tmp_path):
    with pytest.raises(UserError, match="there is no such checkpoint"):
        minerva.load_policy(tmp_path)
