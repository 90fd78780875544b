import io

import numpy as np
import pytest
import torch

from minerva.envs.reward import RewardTransform

STEPS, N, GAMMA = 50, 3, 0.9


def stream() -> tuple[np.ndarray, np.ndarray]:
    """Rewards and ends [T, N]; each environment ends about every eighth step."""
    rng = np.random.default_rng(0)
    return rng.normal(1.0, 5.0, (STEPS, N)).astype(np.float32), rng.random((STEPS, N)) < 0.12


def transform(**changes) -> RewardTransform:
    return RewardTransform(**({"num_envs": N, "gamma": GAMMA, "scale": True, "clip": None} | changes))


def discounted_return(rewards: np.ndarray, ended: np.ndarray, t: int) -> float:
    """Of what one environment got since its episode began, up to step ``t``; the latest reward weighs most."""
    begin = max((k + 1 for k in range(t) if ended[k]), default=0)
    return sum(GAMMA ** (t - k) * rewards[k] for k in range(begin, t + 1))


def test_rewards_are_divided_by_the_deviation_of_all_discounted_returns_so_far():
    reward, ended = stream()
    assert ended.any(axis=0).all()
    returns = np.array([[discounted_return(reward[:, i], ended[:, i], t) for i in range(N)] for t in range(STEPS)])
    scaled = transform()
    for t in range(STEPS):
        expected = reward[t] / np.sqrt(returns[: t + 1].var() + 1e-8)
        np.testing.assert_allclose(scaled(reward[t : t + 1], ended[t : t + 1])[0], expected, rtol=1e-6)


def test_the_mean_is_kept():
    """Rewards of one sign stay of that sign."""
    reward, ended = np.abs(stream()[0]), stream()[1]
    scaled = transform()
    assert (scaled(reward, ended) > 0).all()


def test_the_return_begins_again_with_each_episode():
    """Episodes of one step each: the returns are the rewards."""
    reward, _ = stream()
    scaled = transform()
    result = scaled(reward, np.ones((STEPS, N), bool))[-1]
    np.testing.assert_allclose(result, reward[-1] / np.sqrt(reward.astype(float).var() + 1e-8), rtol=1e-6)


@pytest.mark.parametrize("scale", [True, False])
def test_the_result_is_clipped(scale):
    reward, ended = stream()
    free, clipped = transform(scale=scale), transform(scale=scale, clip=0.5)
    before = free(reward, ended)
    np.testing.assert_array_equal(clipped(reward, ended), np.clip(before, -0.5, 0.5))
    assert (np.abs(before) > 0.5).any()


def test_switched_off_it_is_the_identity():
    reward, ended = stream()
    off = transform(scale=False)
    np.testing.assert_array_equal(off(reward, ended), reward, strict=True)


def test_neither_argument_is_changed():
    reward, ended = stream()
    scaled, before = transform(clip=0.1), (reward.copy(), ended.copy())
    scaled(reward, ended)
    np.testing.assert_array_equal(reward, before[0])
    np.testing.assert_array_equal(ended, before[1])


def test_going_on_from_a_state_is_identical():
    reward, ended = stream()
    scaled, other = transform(), transform()
    scaled(reward[:20], ended[:20])
    file = io.BytesIO()
    torch.save(scaled.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    expected = scaled(reward[20:], ended[20:])
    other.load_state_dict(state)
    np.testing.assert_array_equal(other(reward[20:], ended[20:]), expected)


def test_a_state_that_was_taken_does_not_change_afterwards():
    reward, ended = stream()
    scaled = transform()
    scaled(reward[:1], ended[:1])
    state = scaled.state_dict()
    kept, moments = state["return"].clone(), state["moments"]
    scaled(reward[1:2], np.ones((1, N), bool))
    assert torch.equal(state["return"], kept)
    assert state["moments"] == moments


def test_equal_first_rewards_are_not_blown_up():
    """All environments give 1 in their first step, as CartPole's do."""
    assert np.abs(transform()(np.ones((1, N), np.float32), np.zeros((1, N), bool))).max() < 100
