"""Pictures, against dm_control's own; and actions that are repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dm_control import suite

from minerva.envs.make import make
from minerva.errors import UserError

VALUES: dict[str, Any] = {
    "id": "dm_control/cartpole-balance-v0", "backend": "gymnasium", "allow_different": False, "threads": 1, "timeout": None, "kwargs": {},
    "num_envs": 2, "max_episode_steps": None, "pixels": True, "pixel_size": 64, "camera": 0, "action_repeat": 1, "frame_stack": 1,
    "stagger": 0, "on_hang": None,
}  # fmt: skip


def env(**changes: Any):
    return make(**(VALUES | changes))


@pytest.mark.parametrize(
    ("domain", "task", "camera"), [("cartpole", "balance", 0), ("reacher", "easy", "fixed"), ("quadruped", "escape", 1)]
)
def test_pictures_are_those_of_dm_control(domain, task, camera):
    """Of each environment by itself, in the second episode too, though one camera takes them all."""
    ours = env(id=f"dm_control/{domain}-{task}-v0", camera=camera, max_episode_steps=3)
    ours.reset(3)
    rng = np.random.default_rng(0)
    for _ in range(5):
        step = ours.step(rng.uniform(-1, 1, (2, *ours.spec.action.shape)).astype(np.float32))
    for picture, one in zip(step.obs, ours.env.envs, strict=True):
        theirs = suite.load(domain, task)
        theirs.physics.model.vis.quality.offsamples = 0
        physics = one.unwrapped.physics
        for field in ("hfield_data", "geom_pos", "geom_size", "geom_rgba", "site_pos"):  # what an episode may change
            getattr(theirs.physics.model, field)[:] = getattr(physics.model, field)
        with theirs.physics.reset_context():
            theirs.physics.data.qpos[:], theirs.physics.data.qvel[:] = physics.data.qpos, physics.data.qvel
            theirs.physics.data.ctrl[:], theirs.physics.data.act[:] = physics.data.ctrl, physics.data.act
        flags = {"shadow": False, "reflection": False, "skybox": False}
        fine = theirs.physics.render(128, 128, camera_id=camera, render_flag_overrides=flags)
        expected = np.floor(fine.reshape(64, 2, 64, 2, 3).mean((1, 3)) + 0.5)
        assert expected.std() > 5, "there is something to see"
        assert np.abs(picture.astype(int) - expected).mean() < 0.1
    assert not np.array_equal(*step.obs)
    ours.close()


@pytest.mark.parametrize("id", ["HalfCheetah-v5", "dm_control/cheetah-run-v0"])
def test_videos_and_pictures_do_not_disturb_each_other(id):
    shown, plain = env(id=id, num_envs=1, kwargs={"render_mode": "rgb_array"}), env(id=id, num_envs=1)
    np.testing.assert_array_equal(shown.reset(0), plain.reset(0))
    action = np.zeros((1, *plain.spec.action.shape), np.float32)
    frames = []
    for _ in range(3):
        frames.append(shown.render().astype(int))
        np.testing.assert_array_equal(shown.step(action).obs, plain.step(action).obs)
    assert min(frame.std() for frame in frames) > 20
    assert np.abs(frames[0] - frames[2]).mean() < 5, "little has moved"
    shown.close(), plain.close()


def test_gymnasiums_tasks_too():
    ours = env(id="HalfCheetah-v5", pixel_size=32, frame_stack=3)
    assert (ours.spec.obs_shape, ours.spec.obs_dtype) == ((3, 32, 32, 3), "uint8")
    assert ours.reset(0).std() > 5
    ours.close()


def test_pictures_may_be_larger_than_the_models_screen():
    ours = env(num_envs=1, pixel_size=400)
    assert ours.reset(0).shape == (1, 400, 400, 3)
    ours.close()


def test_what_has_no_pictures_or_no_such_camera_is_refused():
    with pytest.raises(UserError, match=r"env.pixels=true: allowed is false, for it has no MuJoCo"):
        env(id="CartPole-v1")
    with pytest.raises(UserError, match=r"env.camera=top: allowed is one of -1, 0, 1, fixed, lookatcart"):
        env(camera="top")
    with pytest.raises(UserError, match=r"env.backend=envpool: allowed is gymnasium, or auto, with env.pixels=true"):
        env(backend="envpool")


def test_an_action_that_is_repeated_is_so_many_steps():
    repeated, plain = env(pixels=False, action_repeat=4, num_envs=1), env(pixels=False, num_envs=1)
    repeated.reset(0), plain.reset(0)
    for _ in range(3):
        action = np.full((1, 1), 0.3, np.float32)
        once, total = repeated.step(action), 0.0
        for _ in range(4):
            last = plain.step(action)
            total += last.reward.item()
        assert once.reward.item() == pytest.approx(total)
        np.testing.assert_array_equal(once.obs, last.obs)
    lengths = 0
    while not repeated.step(action).truncated[0]:
        lengths += 1
    assert lengths + 1 + 3 == 250


def test_the_ends_of_first_episodes_are_spread_over_steps_of_the_environment():
    ours = env(pixels=False, action_repeat=4, stagger=8)
    ours.reset(0)
    assert ours.step(np.zeros((2, 1), np.float32)).truncated.tolist() == [False, True], (
        "after 8 / 2 steps, one decision"
    )


def test_an_episode_that_ends_within_the_repeats_ends_there():
    repeated, plain = (env(id="CartPole-v1", pixels=False, action_repeat=times, num_envs=1) for times in (4, 1))
    repeated.reset(0), plain.reset(0)
    total, steps = 0.0, 0
    while True:
        step = plain.step(np.array([1]))
        steps += 1
        if step.terminated[0]:
            break
    assert steps % 4, "else it proves nothing"
    while True:
        outcome = repeated.step(np.array([1]))
        total += outcome.reward.item()
        if outcome.terminated[0]:
            break
    assert total == steps
    np.testing.assert_array_equal(outcome.final_obs, step.final_obs)


def test_stacked_pictures_go_on_where_they_were():
    one, other = (env(frame_stack=3, max_episode_steps=7, pixel_size=16) for _ in range(2))
    one.reset(1)
    action = np.full((2, 1), 0.5, np.float32)
    for _ in range(9):
        one.step(action)
    np.testing.assert_array_equal(other.load_state_dict(one.state_dict()), one._obs)
    for _ in range(9):
        ours, theirs = one.step(action), other.step(action)
        for name in ("obs", "reward", "truncated", "final_obs"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
