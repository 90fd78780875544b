"""EnvPool as a backend: against EnvPool itself, and against the other backend."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from minerva.envs.gymnasium import GymnasiumVectorEnv
from minerva.envs.make import make
from minerva.errors import UserError
from minerva.fidelity import verdicts

envpool = pytest.importorskip("envpool")
from minerva.envs.envpool import EnvPoolVectorEnv, task  # noqa: E402

CHEETAH = "dm_control/cheetah-run-v0"


def pool(id: str = CHEETAH, num_envs: int = 3, stagger: int = 0, limit: int | None = None, threads: int = 1):
    return EnvPoolVectorEnv(id=id, num_envs=num_envs, max_episode_steps=limit, stagger=stagger, threads=threads)


def actions(env, steps: int, seed: int = 0) -> np.ndarray:
    rng, space = np.random.default_rng(seed), env.spec.action
    if hasattr(space, "n"):
        return rng.integers(space.n, size=(steps, env.num_envs))
    return rng.uniform(-1, 1, (steps, env.num_envs, *space.shape)).astype(np.float32)


def play(env, actions: np.ndarray) -> list:
    return [tuple(np.copy(x) for x in env.step(action)) for action in actions]


def same(one: list, other: list) -> bool:
    return all(np.array_equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize(
    "id", ["dm_control/reacher-easy-v0", "dm_control/humanoid-walk-v0", "HalfCheetah-v5", "Pendulum-v1", "CartPole-v1"]
)
def test_spaces_are_those_of_the_other_backend(id):
    other = GymnasiumVectorEnv(id=id, kwargs={}, num_envs=1, max_episode_steps=None, stagger=0)
    assert pool(id).spec == other.spec


@pytest.mark.parametrize("id", sorted(verdicts()))
def test_a_verdict_says_what_it_rests_on(id):
    assert verdicts()[id]["verdict"] in ("identical", "alike", "different")
    if verdicts()[id]["verdict"] == "identical":
        assert verdicts()[id]["equal_steps"] > 0
        assert verdicts()[id]["step_us"] > 0
        assert verdicts()[id]["error"] <= 1e-6
    else:
        assert verdicts()[id]["why"]


def test_a_step_is_what_envpool_gives():
    """Raw EnvPool, with its dicts; nothing ends here."""
    ours = pool()
    obs = ours.reset(5)
    raw = envpool.make_gymnasium("CheetahRun-v1", num_envs=3, env_seed=ours._pool.config["env_seed"])
    theirs = raw.reset()[0]
    np.testing.assert_array_equal(obs, np.hstack([theirs["position"], theirs["velocity"]]).astype(np.float32))
    for action in actions(ours, 20):
        step = ours.step(action)
        theirs, reward, *_ = raw.step(action.astype(np.float64))
        expected = np.hstack([theirs["position"], theirs["velocity"]]).astype(np.float32)
        np.testing.assert_array_equal(step.obs, expected)
        np.testing.assert_array_equal(step.final_obs, expected)
        np.testing.assert_array_equal(step.reward, reward)


def test_an_episode_ends_within_its_step():
    """Without EnvPool's row in between, which has an action of no effect and the last reward again."""
    env = pool(limit=4)
    first = env.reset(0).copy()
    steps = play(env, actions(env, 12))
    for t, (obs, _, terminated, truncated, final_obs) in enumerate(steps):
        ended = t % 4 == 3
        assert truncated.tolist() == [ended] * 3
        assert not terminated.any()
        assert np.array_equal(obs, final_obs) != ended
        if ended:  # at rest but for noise: dm_control's cheetah begins near zero velocity
            assert np.abs(obs - first).max() < 1
    # Each episode begins elsewhere.
    assert not np.array_equal(steps[3][0], steps[7][0])


def test_the_task_s_own_end_is_a_termination():
    env = pool("CartPole-v1", num_envs=8)
    env.reset(0)
    steps = play(env, np.ones((30, 8), np.int64))
    assert any(step[2].any() for step in steps)
    assert not any(step[3].any() for step in steps)


def test_an_end_in_the_last_step_is_the_task_s_own():
    """As the other backend has it: what is left is worth nothing, and not to be bootstrapped."""
    ends = {}
    for limit in (None, 9):
        env = pool("CartPole-v1", num_envs=8, limit=limit)
        env.reset(0)
        ends[limit] = [(step[2].copy(), step[3].copy()) for step in play(env, np.ones((9, 8), np.int64))]
    died = [step[0] for step in ends[None]]
    assert died[8].any(), "some fall in the ninth step"
    np.testing.assert_array_equal(ends[9][8][0], died[8])
    assert not (ends[9][8][0] & ends[9][8][1]).any()


def test_a_limit_beyond_the_task_s_own_is_its_own():
    env = pool("dm_control/pendulum-swingup-v0", num_envs=1, limit=1300)
    env.reset(0)
    ends = [bool(step.truncated[0]) for step in map(env.step, np.zeros((1001, 1, 1), np.float32))]
    assert ends == [False] * 999 + [True, False]


def test_an_action_that_is_not_finite_is_refused():
    env = pool()
    env.reset(0)
    with pytest.raises(UserError, match="an action is not finite: nan"):
        env.step(np.full((3, 6), np.nan, np.float32))


def test_steps_of_chance_cannot_be_gone_on_from():
    env, other = pool("LunarLander-v3"), pool("LunarLander-v3")
    env.reset(0)
    play(env, actions(env, 150))
    with pytest.raises(UserError, match=r"env.id=LunarLander-v3: cannot go on"):
        other.load_state_dict(env.state_dict())


def test_first_episodes_are_staggered():
    env = pool(num_envs=4, stagger=20, limit=20)
    env.reset(0)
    ends = np.array([step[3] for step in play(env, actions(env, 40))])
    assert [np.flatnonzero(column).tolist() for column in ends.T] == [[19, 39], [4, 24], [9, 29], [14, 34]]


def test_actions_are_clipped():
    env, other = pool(), pool()
    env.reset(0), other.reset(0)
    far = actions(env, 10) * 5
    assert same(play(env, far), play(other, far.clip(-1, 1)))


def test_the_seed_decides_and_neighbours_share_nothing():
    one, other, threads = pool(num_envs=4), pool(num_envs=4), pool(num_envs=4, threads=2)
    first = one.reset(7).copy()
    assert np.array_equal(first, other.reset(7))
    assert np.array_equal(first, threads.reset(7))
    assert same(play(one, actions(one, 30)), play(threads, actions(one, 30)))
    assert np.array_equal(first, one.reset(7)), "begins again"
    rows = [row.tobytes() for seed in (7, 8, 9) for row in one.reset(seed)]
    assert len(set(rows)) == len(rows)


@pytest.mark.parametrize(
    ("id", "stagger"), [(CHEETAH, 30), ("dm_control/reacher-easy-v0", 0), ("CartPole-v1", 0), ("HalfCheetah-v5", 7)]
)
def test_going_on_from_a_state_is_identical(id, stagger):
    env, other = pool(id, stagger=stagger, limit=35), pool(id, stagger=stagger, limit=35, threads=2)
    env.reset(1), other.reset(2)
    play(env, actions(env, 100))
    file = io.BytesIO()
    torch.save(env.state_dict(), file)
    file.seek(0)
    obs = other.load_state_dict(torch.load(file, weights_only=True))
    assert np.array_equal(obs, env._obs)
    after = actions(env, 100, seed=1)
    assert same(play(env, after), play(other, after))


def test_the_log_of_actions_is_as_long_as_the_longest_episode():
    env = pool("CartPole-v1", num_envs=2)
    env.reset(0)
    play(env, actions(env, 500))
    state = env.state_dict()
    assert len(state["actions"]) == state["length"].max() < 200


def test_a_state_of_another_number_of_environments_is_refused():
    env = pool(num_envs=2)
    env.reset(0)
    with pytest.raises(ValueError, match="a state of 2 environments, for 3"):
        pool(num_envs=3).load_state_dict(env.state_dict())


def values(**changes) -> dict:
    return {
        "id": CHEETAH, "backend": "envpool", "allow_different": False, "threads": 1, "timeout": None, "on_hang": None, "kwargs": {}, "num_envs": 2,
        "max_episode_steps": None, "pixels": False, "pixel_size": 64, "camera": 0, "action_repeat": 1, "frame_stack": 1, "stagger": 0,
    } | changes  # fmt: skip


def test_what_differs_is_refused_unless_asked_for():
    with pytest.raises(
        UserError, match=r"env.backend=envpool: its dm_control/finger-spin-v0 is different: .*allow_different"
    ):
        make(**values(id="dm_control/finger-spin-v0"))
    assert make(**values(id="dm_control/finger-spin-v0", allow_different=True)).spec.obs_shape == (9,)


def test_what_was_not_compared_is_refused():
    with pytest.raises(UserError, match="was not compared"):
        make(**values(id="Breakout-v5"))
    with pytest.raises(UserError, match="it has no Nothing-v0"):
        make(**values(id="Nothing-v0", allow_different=True))
    with pytest.raises(UserError, match=r"env.kwargs=\{'a': 1\}: allowed is \{\}"):
        make(**values(kwargs={"a": 1}))


def test_names():
    assert task("dm_control/humanoid_CMU-run-v0") == "HumanoidCMURun-v1"
    assert task("dm_control/lqr-lqr_2_1-v0") == "LqrLqr21-v1"
    assert task("CartPole-v1") == "CartPole-v1"
