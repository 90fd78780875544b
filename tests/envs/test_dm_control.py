"""The short way through dm_control against the long one, through shimmy and gymnasium."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import shimmy  # noqa: F401
from dm_control.utils import rewards

from minerva.envs import dm_control
from minerva.envs.dm_control import DMControlEnv

# Euler with one and with several steps of physics, Runge-Kutta, a task that ends by itself.
TASKS = ["cheetah-run", "walker-walk", "acrobot-swingup", "humanoid-run", "quadruped-fetch", "manipulator-bring_ball"]


@pytest.mark.parametrize("task", TASKS)
def test_every_number_is_the_same(task, monkeypatch):
    theirs = gymnasium.make(f"dm_control/{task}-v0", disable_env_checker=True)
    ours = DMControlEnv(gymnasium.make(f"dm_control/{task}-v0", disable_env_checker=True).unwrapped, None)
    names = list(theirs.observation_space)

    def flat(obs):
        return np.concatenate([np.ravel(obs[name]) for name in names])

    rng = np.random.default_rng(0)
    for seed in (3, 4):
        obs = ours.reset(seed=seed)[0]
        np.testing.assert_array_equal(obs, flat(theirs.reset(seed=seed)[0]))
        assert obs.shape == ours.observation_space.shape
        for _ in range(60):
            action = rng.uniform(-1, 1, ours.action_space.shape)
            obs, *rest = ours.step(action)
            with monkeypatch.context() as original:
                original.setattr(rewards, "tolerance", dm_control._tolerance)
                expected, *others = theirs.step(action)
            np.testing.assert_array_equal(obs, flat(expected))
            assert rest[:3] == others[:3]


@pytest.mark.parametrize(
    "sigmoid", ["gaussian", "hyperbolic", "long_tail", "reciprocal", "cosine", "linear", "quadratic", "tanh_squared"]
)
def test_a_reward_is_dm_control_s_to_the_bit(sigmoid):
    rng = np.random.default_rng(0)
    for _ in range(300):
        low = rng.choice([-np.inf, 0.0, rng.normal()])
        bounds = (low, rng.choice([low, np.inf, max(low, 0) + rng.random()]) if np.isfinite(low) else rng.normal())
        at_margin = rng.choice([0.1, rng.uniform(0.01, 0.99)])
        options = {
            "bounds": bounds,
            "margin": rng.choice([0.0, 1.0, rng.random()]),
            "sigmoid": sigmoid,
            "value_at_margin": at_margin,
        }
        for x in (
            rng.normal(scale=3),
            float(rng.normal()),
            bounds[1],
            np.float32(rng.normal()),
            rng.normal(size=3),
            2,
            np.nan,
        ):
            ours, theirs = dm_control.tolerance(x, **options), dm_control._tolerance(x, **options)
            assert type(ours) is type(theirs)
            np.testing.assert_array_equal(ours, theirs)
    assert rewards.tolerance is dm_control.tolerance
    assert dm_control.tolerance(0.3) == dm_control._tolerance(0.3) == 0.0
    for wrong, said in (
        ({"bounds": (1.0, 0.0)}, "Lower"),
        ({"margin": -1.0}, "margin"),
        ({"margin": 1.0, "sigmoid": "no"}, "sigmoid"),
    ):
        with pytest.raises(ValueError, match=said):
            dm_control.tolerance(0.3, **wrong)


def test_the_end_is_the_time_limit_s():
    ours = DMControlEnv(gymnasium.make("dm_control/pendulum-swingup-v0", disable_env_checker=True).unwrapped, None)
    ours.reset(seed=0)
    ends = [ours.step(np.zeros(1))[2:4] for _ in range(1000)]
    assert ends[:-1] == [(False, False)] * 999
    assert ends[-1] == (False, True)


def test_a_shorter_limit():
    ours = DMControlEnv(gymnasium.make("dm_control/pendulum-swingup-v0", disable_env_checker=True).unwrapped, 3)
    for _ in range(2):
        ours.reset()
        assert [ours.step(np.zeros(1))[3] for _ in range(3)] == [False, False, True]


def test_a_simulation_that_breaks_says_so():
    from dm_control.rl.control import PhysicsError

    ours = DMControlEnv(gymnasium.make("dm_control/cheetah-run-v0", disable_env_checker=True).unwrapped, None)
    ours.reset(seed=0)
    with pytest.raises(PhysicsError, match="BAD"):
        ours.step(np.full(6, np.nan))
