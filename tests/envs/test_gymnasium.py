import io
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from dm_control import suite
from gymnasium import spaces

from minerva.envs.gymnasium import GymnasiumVectorEnv
from minerva.errors import UserError
from minerva.seeding import derive


class Counter(gymnasium.Env):
    """Observes the step within the episode, and is rewarded with ten times that."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
    action_space: spaces.Space = spaces.Discrete(2)

    def __init__(self, terminate_at: int | None = None, truncate_at: int | None = None) -> None:
        self.terminate_at, self.truncate_at, self.time = terminate_at, truncate_at, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.full(1, self.time), {}

    def step(self, action):
        self.time += 1
        ended = self.time == self.terminate_at, self.time == self.truncate_at
        return np.full(1, self.time), 10.0 * self.time, *ended, {}


class Echo(gymnasium.Env):
    """Observes the action that it was given."""

    def __init__(self, space: spaces.Space) -> None:
        self.action_space = space
        self.observation_space = spaces.Box(-np.inf, np.inf, space.shape, np.float64)

    def reset(self, *, seed=None, options=None):
        return np.zeros(self.observation_space.shape), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return np.asarray(action, np.float64), 0.0, False, False, {}


class Show(gymnasium.Env):
    """Observes always the same."""

    action_space: spaces.Space = spaces.Discrete(2)

    def __init__(self, space: spaces.Space, obs: Any = None) -> None:
        self.observation_space, self.obs = space, obs

    def reset(self, *, seed=None, options=None):
        return self.obs, {}

    def step(self, action):
        return self.obs, 0.0, False, False, {}


for env_class in (Counter, Echo, Show):
    gymnasium.register(f"test/{env_class.__name__}-v0", entry_point=env_class)


def make(id: str, num_envs: int = 1, max_episode_steps: int | None = None, stagger: int = 0, **kwargs: Any):
    return GymnasiumVectorEnv(
        id=id, kwargs=kwargs, num_envs=num_envs, max_episode_steps=max_episode_steps, stagger=stagger
    )


def play(env: GymnasiumVectorEnv, actions: np.ndarray) -> dict[str, np.ndarray]:
    """What happened, [T, N, ...] each, when ``actions`` [T, N, ...] were done."""
    names = ("obs", "reward", "terminated", "truncated", "final_obs")
    steps = []
    for action in actions:
        step = env.step(action)
        steps.append([getattr(step, name).copy() for name in names])
    return {name: np.stack(values) for name, values in zip(names, zip(*steps, strict=True), strict=True)}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name, strict=True)


def random_actions(env: GymnasiumVectorEnv, steps: int) -> np.ndarray:
    """Actions [T, N, ...], some of them out of bounds where there are any."""
    rng = np.random.default_rng(0)
    if isinstance(env.spec.action, spaces.Discrete):
        return rng.integers(env.spec.action.n, size=(steps, env.num_envs))
    return rng.normal(0, 0.7, (steps, env.num_envs, *env.spec.action.shape)).astype(np.float32)


def test_an_episode_ends_and_the_next_begins_in_the_same_step():
    env = make("test/Counter-v0", num_envs=2, terminate_at=3)
    assert env.reset(0).tolist() == [[0], [0]]
    steps = play(env, np.zeros((7, 2), int))
    assert steps["obs"][:, 0, 0].tolist() == [1, 2, 0, 1, 2, 0, 1]
    assert steps["final_obs"][:, 0, 0].tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert steps["reward"][:, 0].tolist() == [10, 20, 30, 10, 20, 30, 10]
    assert steps["terminated"][:, 0].tolist() == [False, False, True, False, False, True, False]
    assert not steps["truncated"].any()


@pytest.mark.parametrize(
    ("kwargs", "terminated", "truncated"),
    [
        ({"terminate_at": 3}, True, False),
        ({"truncate_at": 3}, False, True),
        ({"terminate_at": 3, "truncate_at": 3}, True, False),  # nothing more to come: not merely cut
        ({"max_episode_steps": 3}, False, True),
        ({"max_episode_steps": 3, "terminate_at": 3}, True, False),
    ],
)
def test_how_an_episode_ended(kwargs, terminated, truncated):
    env = make("test/Counter-v0", **kwargs)
    env.reset(0)
    steps = play(env, np.zeros((3, 1), int))
    assert (steps["terminated"][:, 0].tolist(), steps["truncated"][:, 0].tolist()) == (
        [False, False, terminated],
        [False, False, truncated],
    )


def test_the_time_limit_replaces_the_environments_own():
    env = make("CartPole-v1", max_episode_steps=5)
    env.reset(0)
    assert play(env, np.tile([[0], [1]], (6, 1)))["truncated"][:, 0].nonzero()[0].tolist() == [4, 9]


def test_only_the_first_episodes_are_staggered():
    env = make("test/Counter-v0", num_envs=4, truncate_at=10, stagger=8)
    for _ in range(2):  # from each reset on
        env.reset(0)
        ended = play(env, np.zeros((40, 4), int))["truncated"]
        assert [(ended[:, i].nonzero()[0] + 1).tolist() for i in range(4)] == [
            [10, 20, 30, 40],
            [2, 12, 22, 32],
            [4, 14, 24, 34],
            [6, 16, 26, 36],
        ]


def test_a_staggered_end_is_a_truncation_unless_the_task_ended_too():
    env = make("test/Counter-v0", num_envs=2, terminate_at=3, stagger=6)  # environment 1 is cut at 3
    env.reset(0)
    steps = play(env, np.zeros((3, 2), int))
    assert steps["terminated"][2].tolist() == [True, True]
    assert not steps["truncated"].any()


def test_actions_are_clipped_to_the_bounds():
    space = spaces.Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64)
    env = make("test/Echo-v0", num_envs=2, space=space)
    env.reset(0)
    action = np.array([[-3.0, -0.5], [0.5, 9.0]], np.float32)
    assert env.step(action).obs.tolist() == [[-1.0, 0.0], [0.5, 4.0]]
    assert action.tolist() == [[-3.0, -0.5], [0.5, 9.0]]
    assert env.spec.action == space


def test_a_discrete_action_space_may_begin_anywhere():
    env = make("test/Echo-v0", num_envs=3, space=spaces.Discrete(3, start=5))
    assert env.spec.action == spaces.Discrete(3, start=5)
    env.reset(0)
    assert env.step(np.array([0, 1, 2])).obs.ravel().tolist() == [5, 6, 7]


def test_bounds_that_mean_none_are_infinite():
    env = make("dm_control/lqr-lqr_2_1-v0")  # unlimited actuators, of +-1e10 in dm_control
    assert env.spec.action.low.tolist() == [-np.inf]
    assert env.spec.action.high.tolist() == [np.inf]


def test_a_dict_is_flattened_in_the_order_of_the_names():
    space = spaces.Dict(
        {"b": spaces.Box(-9, 9, (2, 2)), "c": spaces.Box(-9, 9, ()), "a": spaces.Box(-9, 9, (1,), np.float64)}
    )
    obs = {"c": np.float32(6), "b": np.array([[2, 3], [4, 5]], np.float32), "a": np.array([1.0])}
    env = make("test/Show-v0", num_envs=2, space=space, obs=obs)
    assert env.spec.obs_shape == (6,)
    assert env.spec.parts == (("a", (1,), False), ("b", (2, 2), False), ("c", (1,), False))
    assert env.reset(0).tolist() == [[1, 2, 3, 4, 5, 6]] * 2


def test_the_images_of_a_dict_come_last():
    byte = partial(spaces.Box, 0, 255, dtype=np.uint8)
    space = spaces.Dict({"a": byte((2, 2)), "b": spaces.Box(-9, 9, (1,)), "c": byte((2,))})
    space["d"] = spaces.Box(0, 3, (1, 2), np.uint8)  # a board
    obs = {"a": np.array([[1, 2], [3, 255]], np.uint8), "b": np.float32([5]), "c": np.array([6, 7], np.uint8)}
    obs["d"] = np.array([[8, 9]], np.uint8)
    env = make("test/Show-v0", num_envs=2, space=space, obs=obs)
    assert (env.spec.obs_shape, env.spec.obs_dtype) == ((9,), "float32")
    assert env.spec.parts == (("b", (1,), False), ("c", (2,), False), ("d", (1, 2), False), ("a", (2, 2), True))
    assert env.reset(0).tolist() == [[5, 6, 7, 8, 9, 1, 2, 3, 255]] * 2


@pytest.mark.parametrize(
    ("space", "obs", "dtype", "expected"),
    [
        (spaces.Box(-1, 1, (2,), np.float64), np.array([0.1, -0.3]), "float32", [0.1, -0.3]),
        (spaces.Box(0, 9, (2,), np.int64), np.array([3, 4]), "float32", [3, 4]),
        (spaces.Box(0, 255, (2, 1, 3), np.uint8), np.array([[[1, 2, 255]]] * 2), "uint8", [[[1, 2, 255]]] * 2),
        (spaces.Discrete(4), 2, "float32", [0, 0, 1, 0]),
        (spaces.Discrete(3, start=5), 6, "float32", [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), "float32", [0, 1, 1, 0, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), "float32", [1, 0, 1]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(-9, 9, (1,))]), (1, np.array([7.0])), "float32", [0, 1, 7]),
        (
            spaces.Dict({"z": spaces.Box(-9, 9, (1,)), "a": spaces.Discrete(2)}),
            {"z": np.array([7.0]), "a": 0},
            "float32",
            [1, 0, 7],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, spaces.Space) else "",
)
def test_observation_spaces(space, obs, dtype, expected):
    env = make("test/Show-v0", num_envs=2, space=space, obs=obs)
    expected = np.array([expected] * 2, dtype)
    assert (env.spec.obs_shape, env.spec.obs_dtype) == (expected.shape[1:], dtype)
    np.testing.assert_array_equal(env.reset(0), expected, strict=True)
    step = env.step(np.zeros(2, int))
    np.testing.assert_array_equal(step.obs, expected, strict=True)
    np.testing.assert_array_equal(step.final_obs, expected, strict=True)
    assert (step.reward.dtype, step.terminated.dtype, step.truncated.dtype) == (np.float32, bool, bool)


RESUMABLE = ["CartPole-v1", "HalfCheetah-v5", "dm_control/cheetah-run-v0", "dm_control/reacher-easy-v0"]


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("id", RESUMABLE)
def test_going_on_from_a_state_is_bit_identical(id, used):
    """Taken in the middle of the second episodes, and followed over the ends of further ones."""
    arguments = {"num_envs": 2, "max_episode_steps": 30, "stagger": 20}
    env, other = make(id, **arguments), make(id, **arguments)
    actions = random_actions(env, 85)
    env.reset(seed=3)
    play(env, actions[:40])
    file = io.BytesIO()
    torch.save(env.state_dict(), file)

    if used:
        other.reset(seed=99)
        play(other, actions[:7])
    file.seek(0)
    obs = other.load_state_dict(torch.load(file, weights_only=True))
    np.testing.assert_array_equal(obs, env._obs)
    expected, resumed = play(env, actions[40:]), play(other, actions[40:])
    assert expected["truncated"].any(axis=0).all() or expected["terminated"].any(axis=0).all()
    assert_same(expected, resumed)


def test_a_system_that_is_drawn_when_it_is_made_goes_on_bit_identically():
    arguments = {"num_envs": 2, "max_episode_steps": 30, "task_kwargs": {"random": 5}}
    env, other = (make("dm_control/lqr-lqr_2_1-v0", **arguments) for _ in range(2))
    actions = random_actions(env, 60)
    env.reset(seed=3)
    play(env, actions[:20])
    other.load_state_dict(env.state_dict())
    assert_same(play(env, actions[20:]), play(other, actions[20:]))


def test_a_state_may_be_taken_where_an_episode_just_began():
    env, other = make("CartPole-v1", num_envs=2), make("CartPole-v1", num_envs=2)
    obs = env.reset(seed=3)
    np.testing.assert_array_equal(other.load_state_dict(env.state_dict()), obs)
    assert_same(play(env, np.ones((30, 2), int)), play(other, np.ones((30, 2), int)))


def test_a_staggered_first_episode_goes_on_to_its_cut():
    env, other = (make("test/Counter-v0", num_envs=2, truncate_at=50, stagger=16) for _ in range(2))
    env.reset(0)
    play(env, np.zeros((5, 2), int))
    other.load_state_dict(env.state_dict())
    assert play(other, np.zeros((5, 2), int))["truncated"][:, 1].tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("id", RESUMABLE)
def test_seeds_decide_everything(id):
    def run(seed: int) -> dict[str, np.ndarray]:
        env = make(id, num_envs=3, max_episode_steps=4)
        first = env.reset(seed).copy()
        return {"first": first, **play(env, random_actions(env, 10))}

    one, again, other = run(0), run(0), run(1)
    assert_same(one, again)
    assert (one["first"] != other["first"]).any(axis=1).all()
    begins = np.concatenate([one["first"], one["obs"][3], one["obs"][7]])  # of three episodes of three environments
    assert len(np.unique(begins, axis=0)) == 9


def test_a_reset_with_the_same_seed_begins_again():
    env = make("CartPole-v1", num_envs=2)
    runs = []
    for _ in range(2):
        first = env.reset(5).copy()
        runs.append({"first": first, **play(env, np.ones((25, 2), int))})
    assert_same(*runs)


@pytest.mark.parametrize(("domain", "task"), [("cheetah", "run"), ("reacher", "easy")])
def test_observations_and_rewards_are_those_of_dm_control(domain, task):
    env = make(f"dm_control/{domain}-{task}-v0", num_envs=2)
    obs, actions = env.reset(seed=11).copy(), random_actions(env, 20)
    steps = play(env, actions)
    for i in range(2):
        reference = suite.load(domain, task, task_kwargs={"random": np.random.RandomState(derive(11, i, 0))})
        spec = reference.action_spec()
        np.testing.assert_array_equal((env.spec.action.low, env.spec.action.high), (spec.minimum, spec.maximum))
        np.testing.assert_array_equal(obs[i], flat(reference.reset().observation), strict=True)
        for t, action in enumerate(actions[:, i]):
            expected = reference.step(np.clip(action, spec.minimum, spec.maximum))
            np.testing.assert_array_equal(steps["obs"][t, i], flat(expected.observation), strict=True)
            assert steps["reward"][t, i] == np.float32(expected.reward)


def flat(observation: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([np.ravel(observation[name]) for name in sorted(observation)]).astype(np.float32)


def test_an_episode_of_dm_control_is_cut_and_not_terminated():
    env = make("dm_control/pendulum-swingup-v0")
    env.reset(0)
    steps = play(env, np.zeros((1001, 1, 1), np.float32))
    assert not steps["terminated"].any()
    assert steps["truncated"][:, 0].nonzero()[0].tolist() == [999]
    np.testing.assert_array_equal(steps["obs"][:999], steps["final_obs"][:999])
    assert (steps["obs"][999] != steps["final_obs"][999]).any()


def test_kwargs_reach_the_environment():
    still = make("Pendulum-v1", g=0.0)
    obs = still.reset(0).copy()
    expected = gymnasium.make("Pendulum-v1", g=0.0)
    start, _ = expected.reset(seed=derive(0, 0, 0))
    np.testing.assert_array_equal(obs[0], start)
    following, *_ = expected.step(np.zeros(1, np.float32))
    np.testing.assert_array_equal(still.step(np.zeros((1, 1), np.float32)).obs[0], following)


def test_a_module_can_be_named_that_registers_the_environment(tmp_path, monkeypatch):
    (tmp_path / "registers_an_env.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('Registered-v0', entry_point=CartPoleEnv)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make("registers_an_env:Registered-v0").spec.obs_shape == (4,)


@pytest.mark.parametrize(
    ("id", "kwargs", "message"),
    [
        ("CartPol-v1", {}, "env.id=CartPol-v1: .*nearest: .*CartPole-v1"),
        ("HalfCheetah-v55", {}, "nearest: .*HalfCheetah-v5"),
        ("dm_control/cheetah-runn-v0", {}, "nearest: .*dm_control/cheetah-run-v0"),
        ("CartPole-v1", {"gravitas": 1}, "env.id=CartPole-v1: cannot be made: .*gravitas"),
        ("no_such_module_anywhere:Env-v0", {}, "no_such_module_anywhere"),
        ("", {}, "cannot be made"),
    ],
)
def test_an_environment_that_cannot_be_made_is_a_users_mistake(id, kwargs, message):
    with pytest.raises(UserError, match=message) as error:
        make(id, **kwargs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "space", [spaces.Sequence(spaces.Discrete(2)), spaces.Graph(spaces.Box(-1, 1, (2,)), None), spaces.Space()]
)
def test_an_unsupported_observation_space_is_a_users_mistake(space):
    message = f"env.id=test/Show-v0: observation space {type(space).__name__} is not supported; allowed: Box"
    with pytest.raises(UserError, match=message):
        make("test/Show-v0", space=space)


@pytest.mark.parametrize(
    "space",
    [
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary(2),
        spaces.Box(-1, 1, (2, 2)),
        spaces.Box(-1, 1, ()),
        spaces.Box(0, 5, (2,), np.int64),
        spaces.Dict({"a": spaces.Discrete(2)}),
    ],
    ids=str,
)
def test_an_unsupported_action_space_is_a_users_mistake(space):
    class Acts(Counter):
        action_space = space

    gymnasium.register("test/Acts-v0", entry_point=Acts)
    try:
        with pytest.raises(
            UserError, match=r"env.id=test/Acts-v0: action space .* is not supported; allowed: Discrete"
        ):
            make("test/Acts-v0")
    finally:
        gymnasium.registry.pop("test/Acts-v0")
