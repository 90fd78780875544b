import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from minerva.envs.gymnasium import GymnasiumVectorEnv
from minerva.evaluator import Evaluator
from minerva.seeding import derive
from minerva.types import Decision


class OfChance(gymnasium.Env):
    """Episodes of 1 to 30 steps, by their seed; the long ones are worth more, and the action is added."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-10, 10, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.time = int(self.np_random.integers(1, 31)), 0
        return np.full(1, self.length, np.float32), {}

    def step(self, action):
        self.time += 1
        reward = float(self.length + action[0])
        return np.full(1, self.length, np.float32), reward, self.time == self.length, False, {}


gymnasium.register("test/OfChance-v0", entry_point=OfChance)


class Stub:
    """Always the same action; counts how often it was asked, and asks to be deterministic."""

    def __init__(self, action: float = 0.0) -> None:
        self.action, self.calls, self.actor = action, 0, self

    def act(self, obs: Tensor, noise: Tensor | None = None) -> Decision:
        assert noise is None
        assert not torch.is_grad_enabled()
        self.calls += 1
        action = torch.full((len(obs), 1), self.action)
        return Decision(action, action, obs)


LONG = 1000  # steps, that no episode here has


def make(num_envs: int, seed: int = 0) -> Evaluator:
    env = GymnasiumVectorEnv(id="test/OfChance-v0", kwargs={}, num_envs=num_envs, max_episode_steps=None, stagger=0)
    return Evaluator(env=env, seed=seed, device=torch.device("cpu"))


def lengths(num_envs: int, episodes: int, seed: int) -> np.ndarray:
    """Of the episodes that are to be played: number k by environment k mod N, as its k // N-th."""
    env, result = OfChance(), []
    for k in range(episodes):
        env.reset(seed=derive(seed, k % num_envs, k // num_envs))
        result.append(env.length)
    return np.array(result)


@pytest.mark.parametrize(("num_envs", "episodes"), [(1, 3), (3, 3), (3, 7), (4, 30), (5, 2)])
def test_each_environment_plays_its_share_whatever_the_episodes_lengths(num_envs, episodes):
    """Taking those that end first instead would prefer the short ones."""
    length = lengths(num_envs, episodes, seed=3)
    returns = (length + 0.5) * length
    assert make(num_envs, seed=3)(Stub(0.5), episodes, LONG) == {
        "eval/return_mean": pytest.approx(returns.mean()),
        "eval/return_std": pytest.approx(returns.std()),
        "eval/return_min": returns.min(),
        "eval/return_max": returns.max(),
        "eval/length_mean": pytest.approx(length.mean()),
    }


def test_it_stops_when_the_last_episode_is_over():
    algo, length = Stub(), lengths(num_envs=3, episodes=7, seed=1)
    make(3, seed=1)(algo, 7, LONG)
    assert algo.calls == max(length[i::3].sum() for i in range(3))


def test_statistics_equal_the_numbers_worked_out_by_hand():
    class Scripted:
        """The first environment's episodes are of 1 step of reward 4; the second's are of 3 steps of 1, 2 and 3."""

        num_envs = 2

        def reset(self, seed):
            self.time = 0
            return np.zeros((2, 1), np.float32)

        def step(self, action):
            reward = np.array([4, 1 + self.time % 3], np.float32)
            self.time += 1
            terminated, truncated = np.array([True, False]), np.array([False, self.time % 3 == 0])
            return type("Step", (), {
                "obs": np.zeros((2, 1), np.float32),
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
            })  # fmt: skip

    # Three episodes: two of the first environment, one of the second; returns 4, 4, 6; lengths 1, 1, 3.
    scores = Evaluator(env=Scripted(), seed=0, device=torch.device("cpu"))(Stub(), 3, LONG)
    assert scores == {
        "eval/return_mean": pytest.approx(14 / 3),
        "eval/return_std": pytest.approx(np.sqrt(8) / 3),  # deviations -2/3, -2/3, 4/3: variance 24/27
        "eval/return_min": 4,
        "eval/return_max": 6,
        "eval/length_mean": pytest.approx(5 / 3),
    }


def test_the_episodes_are_the_same_each_time_and_decided_by_the_seed():
    evaluator = make(3, seed=7)
    first = evaluator(Stub(), 8, LONG)
    assert evaluator(Stub(), 8, LONG) == first
    evaluator(Stub(), 5, LONG)
    assert evaluator(Stub(), 8, LONG) == first
    assert make(3, seed=7)(Stub(), 8, LONG) == first
    assert make(3, seed=8)(Stub(), 8, LONG) != first


def test_an_episode_that_does_not_end_is_cut():
    length = lengths(num_envs=4, episodes=4, seed=3)
    assert length.min() < 10 < length.max()
    scores = make(4, seed=3)(Stub(), 4, 10)
    assert scores["eval/length_mean"] == pytest.approx(length.clip(max=10).mean())
    assert scores["eval/return_mean"] == pytest.approx((length * length.clip(max=10)).mean())


def test_nothing_random_is_used_up():
    """Training goes on as if there had been no evaluation."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    make(2)(Stub(), 4, LONG)
    assert torch.equal(torch.get_rng_state(), before)
