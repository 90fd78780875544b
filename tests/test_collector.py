import io
from dataclasses import fields
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from minerva.collector import Collector
from minerva.envs.gymnasium import GymnasiumVectorEnv
from minerva.envs.reward import RewardTransform
from minerva.errors import NotFiniteError, UserError
from minerva.types import Decision, EnvSpec, Rollout, Step


class Numbered:
    """Two environments whose observations are 100 for the second + 10 for each episode + the step within it.

    The first one's episodes terminate after 3 steps, of reward 1; the second one's are cut after 4, of reward 2.
    """

    spec = EnvSpec((1,), "float32", spaces.Discrete(5))
    num_envs = 2

    def __init__(self, stagger: int = 0) -> None:
        self.stagger, self.seed = stagger, None
        self.episode, self.time = np.zeros(2), np.zeros(2)
        self.actions: list[list[int]] = []
        self.broken: dict[str, tuple[int, float]] = {}  # quantity: at which step, with which value

    def observe(self) -> np.ndarray:
        return (np.array([0, 100]) + 10 * self.episode + self.time).astype(np.float32)[:, None]

    def reset(self, seed: int) -> np.ndarray:
        self.seed = seed
        return self.observe()

    def step(self, action: np.ndarray) -> Step:
        self.actions.append(action.tolist())
        self.time += 1
        final_obs, reward = self.observe(), np.array([1, 2], np.float32)
        for name, array in (("observation", final_obs[:, 0]), ("reward", reward)):
            step, value = self.broken.get(name, (0, 0.0))
            if step == len(self.actions):
                array[1] = value
        ended = self.time == [3, 4]
        self.episode += ended
        self.time[ended] = 0
        obs = np.where(ended[:, None], self.observe(), final_obs)
        return Step(obs, reward, ended & [True, False], ended & [False, True], final_obs)

    def close(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {"episode": torch.tensor(self.episode), "time": torch.tensor(self.time)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.episode, self.time = state["episode"].numpy().copy(), state["time"].numpy().copy()


class Stub:
    """V(s) = s + 1/2; the parameters of the policy are -s and 7, the action is s mod 5."""

    def __init__(self, horizon: int) -> None:
        self.horizon, self.network, self.actor = horizon, self, self

    def noise(self, *shape: int) -> Tensor:
        return torch.zeros(shape)

    def act(self, obs: Tensor, noise: Tensor | None = None) -> Decision:
        assert noise.shape == obs.shape[:1]
        action = obs[:, 0].long() % 5
        return Decision(action, action, torch.stack([-obs[:, 0], torch.full((len(obs),), 7.0)], dim=-1))

    def value(self, obs: Tensor) -> Tensor:
        return obs[..., 0] + 0.5

    def distribution(self, policy: Tensor) -> Any:
        return SimpleNamespace(log_prob=lambda action: policy[..., 0] * 1000 + action)


class Negated:
    """Turns rewards to their negative, and keeps what it was given."""

    def __init__(self) -> None:
        self.seen: list[tuple[list[float], list[bool]]] = []

    def __call__(self, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        self.seen.append((reward.tolist(), ended.tolist()))
        return -reward

    def restart(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def make(horizon: int = 5, env: Any = None, reward_transform: Any = None, seed: int = 0, algo: Any = None) -> Collector:
    return Collector(
        env=env or Numbered(),
        algo=algo or Stub(horizon),
        reward_transform=reward_transform or Negated(),
        seed=seed,
        device=torch.device("cpu"),
    )


# What the two environments show in ten steps.
OBS = [[0, 100], [1, 101], [2, 102], [10, 103], [11, 110], [12, 111], [20, 112], [21, 113], [22, 120], [30, 121]]


def test_a_rollout_is_laid_out_by_steps_and_environments():
    env = Numbered()
    rollout = make(5, env, seed=17).collect(0)
    assert env.seed == 17
    assert rollout.obs[..., 0].tolist() == OBS[:5]
    assert rollout.obs.shape == (5, 2, 1)
    assert rollout.action.tolist() == env.actions == [[0, 0], [1, 1], [2, 2], [0, 3], [1, 0]]
    assert rollout.policy.tolist() == [[[-a, 7], [-b, 7]] for a, b in OBS[:5]]
    assert rollout.log_prob.tolist() == [[-1000 * a + a % 5, -1000 * b + b % 5] for a, b in OBS[:5]]
    assert rollout.terminated.tolist() == [[False, False]] * 2 + [[True, False]] + [[False, False]] * 2
    assert rollout.truncated.tolist() == [[False, False]] * 3 + [[False, True]] + [[False, False]]
    assert rollout.value.tolist() == [[a + 0.5, b + 0.5] for a, b in OBS[:5]]


def test_the_next_value_is_that_of_what_really_followed():
    rollout = make(5).collect(0)
    # The second environment's fourth step ended on 104, not on the 110 of the next row.
    expected = [[1.5, 101.5], [2.5, 102.5], [np.nan, 103.5], [11.5, 104.5], [12.5, 111.5]]
    assert torch.where(rollout.terminated, torch.nan, rollout.next_value).numpy() == pytest.approx(
        np.array(expected), nan_ok=True
    )


def test_a_cut_in_the_last_row_is_valued_by_what_it_was_cut_at():
    rollout = make(4).collect(0)
    assert rollout.truncated[-1].tolist() == [False, True]
    assert rollout.next_value[-1].tolist() == [11.5, 104.5]


def test_the_next_rollout_goes_on_where_the_last_one_ended_and_leaves_it_alone():
    collector = make(5)
    first = collector.collect(0)
    second = collector.collect(10)
    assert first.obs[..., 0].tolist() == OBS[:5]
    assert second.obs[..., 0].tolist() == OBS[5:]
    assert first.truncated[:, 1].tolist() == [False, False, False, True, False]
    assert second.truncated[:, 1].tolist() == [False, False, True, False, False]


def test_rewards_are_transformed_and_statistics_are_not():
    transform = Negated()
    collector = make(5, reward_transform=transform)
    assert collector.collect(0).reward.tolist() == [[-1, -2]] * 5
    ended = [[False, False], [False, False], [True, False], [False, True], [False, False]]
    assert transform.seen == [([[1, 2]] * 5, ended)]
    # Episodes of 3 steps of 1 and of 4 steps of 2.
    assert collector.metrics() == {"train/episode_return": 5.5, "train/episode_length": 3.5}


def test_metrics_are_of_the_episodes_that_ended_since_they_were_last_asked_for():
    collector = make(2)
    collector.collect(0)
    assert all(np.isnan(value) for value in collector.metrics().values())
    collector.collect(4)  # steps 3 and 4: an end in each environment, over the border between the rollouts
    assert collector.metrics() == {"train/episode_return": 5.5, "train/episode_length": 3.5}
    collector.collect(8)  # steps 5 and 6: the first environment's second end
    assert collector.metrics() == {"train/episode_return": 3, "train/episode_length": 3}
    assert set(collector.metrics()) == {"train/episode_return", "train/episode_length"}
    assert all(np.isnan(value) for value in collector.metrics().values())


def test_staggered_first_episodes_are_not_counted():
    collector = make(5, Numbered(stagger=8))
    collector.collect(0)
    assert all(np.isnan(value) for value in collector.metrics().values())
    collector.collect(10)  # the first environment's second and third end, the second one's second
    assert collector.metrics()["train/episode_return"] == pytest.approx((3 + 3 + 8) / 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantity", ["observation", "reward"])
def test_what_is_not_finite_is_named(quantity, value):
    env = Numbered()
    env.broken[quantity] = 3, value
    collector = make(5, env)
    with pytest.raises(UserError, match=rf"{quantity} of environment 1 is {value} at step 1004\b") as error:
        collector.collect(1000)  # the third step of two environments begins at 1000 + 2 * 2
    assert "\n" not in str(error.value)


def test_the_first_observation_is_checked_too():
    class Broken(Numbered):
        def reset(self, seed: int) -> np.ndarray:
            return np.array([[0.0], [np.nan]], np.float32)

    with pytest.raises(NotFiniteError, match="first observation of environment 1 is nan at step 70"):
        make(5, Broken()).collect(70)


def test_beginning_anew_forgets_the_episodes_under_way():
    collector, other = make(2), make(2)
    collector.collect(0)
    collector.env = Numbered()
    collector.restart(9)
    assert collector.env.seed == 9
    assert_same(collector.collect(4), other.collect(0))
    collector.collect(8)
    assert collector.metrics()["train/episode_return"] == pytest.approx((3 + 8) / 2), "from the restart on"


def test_the_last_observation_of_an_episode_is_checked_too():
    env = Numbered()
    env.broken["observation"] = 4, np.nan
    with pytest.raises(UserError, match="observation of environment 1"):
        make(5, env).collect(0)


def assert_same(one: Rollout, other: Rollout) -> None:
    for field in fields(Rollout):
        assert torch.equal(getattr(one, field.name), getattr(other, field.name)), field.name


def saved_and_loaded(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_going_on_from_a_state_is_identical():
    collector, other = make(5), make(5, seed=99)
    collector.collect(0)
    other.load_state_dict(saved_and_loaded(collector.state_dict()))
    assert_same(other.collect(10), collector.collect(10))
    # Both rollouts' episodes: three of the first environment, two of the second.
    metrics = other.metrics()
    assert metrics["train/episode_return"] == pytest.approx((3 * 3 + 2 * 8) / 5)
    assert metrics == collector.metrics()


def test_going_on_from_a_state_is_identical_in_cartpole_with_scaled_rewards():
    def cartpole() -> Collector:
        env = GymnasiumVectorEnv(id="CartPole-v1", kwargs={}, num_envs=3, max_episode_steps=None, stagger=9)
        algo = Stub(16)
        algo.act = lambda obs, _: Decision((obs[:, 2] > 0.05).long(), (obs[:, 2] > 0.05).long(), obs)
        reward = RewardTransform(num_envs=3, gamma=0.9, scale=True, clip=10.0)
        return make(env=env, algo=algo, reward_transform=reward, seed=5)

    collector, other = cartpole(), cartpole()
    collector.collect(0)
    other.load_state_dict(saved_and_loaded(collector.state_dict()))
    for step in range(3, 9):
        expected = collector.collect(step * 48)
        assert_same(other.collect(step * 48), expected)
    assert other.metrics() == collector.metrics()


def test_a_state_that_was_taken_does_not_change_afterwards():
    collector = make(5)
    collector.collect(0)
    state = collector.state_dict()
    kept = saved_and_loaded(state)
    collector.collect(10)
    for name in ("obs", "episode_return", "episode_length", "cut"):
        assert torch.equal(state[name], kept[name]), name
    assert state["finished"] == kept["finished"]


def test_images_stay_bytes():
    class Images(Numbered):
        spec = EnvSpec((1,), "uint8", spaces.Discrete(5))

        def observe(self) -> np.ndarray:
            return super().observe().astype(np.uint8)

    rollout = make(5, Images()).collect(0)
    assert rollout.obs.dtype == torch.uint8
    assert rollout.obs[..., 0].tolist() == OBS[:5]
