"""Videos, read back by ffmpeg; and that recording them changes nothing else."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gymnasium
import imageio_ffmpeg
import numpy as np
import pytest
import torch

from minerva.envs.make import make
from minerva.errors import UserError
from minerva.video import Recorder
from tests.envs.test_pixels import VALUES
from tests.test_train import assert_same, train

LEFT = SimpleNamespace(act=lambda obs: SimpleNamespace(action=torch.zeros(1, dtype=torch.long)))


def recorder(id: str = "CartPole-v1", max_steps: int = 500, **changes) -> Recorder:
    values = {"id": id, "num_envs": 1, "pixels": False, "kwargs": {"render_mode": "rgb_array"}} | changes
    return Recorder(env=make(**(VALUES | values)), seed=3, max_steps=max_steps)


def frames(path: Path) -> tuple[dict, np.ndarray]:
    video = imageio_ffmpeg.read_frames(str(path))
    facts = next(video)
    width, height = facts["size"]
    return facts, np.stack([np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in video])


def test_an_episode_is_shown_from_its_first_step_to_its_last(tmp_path):
    record = recorder()
    total = record(LEFT, tmp_path / "new" / "one.mp4")
    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    assert 5 < total < 20, "a pole that is pushed to one side falls"
    facts, shown = frames(tmp_path / "new" / "one.mp4")
    assert facts["fps"] == env.metadata["render_fps"] == 50
    assert len(shown) == total, "one frame before each step, one reward for each"
    assert np.abs(shown[0].astype(int) - shown[-1]).mean() > 1, "it moves"
    # Below the words, the first frame is the environment's own after a reset, but for the compression.
    record.env.reset(3)
    own = record.env.render()
    assert np.abs(shown[0, 50:].astype(int) - own[50:]).mean() < 3
    assert np.abs(shown[0, :40, :200].astype(int) - own[:40, :200]).mean() > 3, "the words"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["one.mp4"]


def test_the_same_episode_gives_the_same_file(tmp_path):
    record = recorder(max_steps=5)
    for name in ("one.mp4", "other.mp4"):
        assert record(LEFT, tmp_path / name) == 5.0
    assert (tmp_path / "one.mp4").read_bytes() == (tmp_path / "other.mp4").read_bytes()


@pytest.mark.parametrize(("changes", "fps", "count"), [({}, 50, 10), ({"action_repeat": 4}, 25, 20)])
def test_of_fast_tasks_frames_are_left_out(tmp_path, changes, fps, count):
    """cartpole has 100 steps a second."""
    still = SimpleNamespace(act=lambda obs: SimpleNamespace(action=torch.zeros(1, 1)))
    recorder("dm_control/cartpole-balance-v0", 20, frame_stack=2, **changes)(still, tmp_path / "a.mp4")
    facts, shown = frames(tmp_path / "a.mp4")
    assert (facts["fps"], len(shown), facts["size"]) == (fps, count, (480, 480))


def test_what_fails_leaves_no_file(tmp_path):
    def fail(obs):
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        recorder()(SimpleNamespace(act=fail), tmp_path / "a.mp4")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"a.mp4: cannot be written: File exists"):
        recorder()(LEFT, tmp_path / "file" / "a.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_ffmpeg_that_fails_is_one_line_and_leaves_no_file(tmp_path, monkeypatch):
    ffmpeg = tmp_path / "ffmpeg"
    real = imageio_ffmpeg.get_ffmpeg_exe()
    # It begins the file, takes all of the frames, and does not end it.
    ffmpeg.write_text(
        f'#!/bin/sh\nfor last; do :; done\ncase "$*" in *libx264*) echo no >"$last"; exec cat >/dev/null;; esac\nexec {real} "$@"\n'
    )
    ffmpeg.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(ffmpeg))
    with pytest.raises(UserError, match=r"^\S+a.mp4: cannot be written: [^\n]+$"):
        recorder(max_steps=5)(LEFT, tmp_path / "a.mp4")
    assert [path.name for path in tmp_path.iterdir()] == ["ffmpeg"]


def test_what_shows_nothing_is_refused():
    with pytest.raises(UserError, match="it shows no pictures"):
        recorder("tests.envs.shaped:test/Shaped-v0", kwargs={"observe": "vector", "act": "discrete"})


def test_videos_of_evaluations_change_nothing_else(python, tmp_path):
    cartpole = ("env=gymnasium/CartPole-v1", "trainer.evaluations=2", "trainer.total_steps=4096", "compile=false")
    for name, video in (("with", "true"), ("without", "false")):
        done = train(python, tmp_path / name, *cartpole, f"trainer.video={video}")
        assert done.returncode == 0, done.stderr
    assert_same(tmp_path / "with", tmp_path / "without")
    videos = sorted(path.name for path in (tmp_path / "with" / "videos").iterdir())
    assert len(videos) == 3
    assert "4096.mp4" in videos
    assert not (tmp_path / "without" / "videos").exists()
    done = python("scripts/video.py", tmp_path / "with", "--checkpoint", "last")
    assert done.returncode == 0, done.stderr
    path = tmp_path / "with" / "videos" / "last.mp4"
    assert done.stdout.startswith(f"{path}: last checkpoint at step 4,096, return ")
    # The last evaluation's video is of the same policy and the same episode.
    assert path.read_bytes() == (tmp_path / "with" / "videos" / "4096.mp4").read_bytes()
    refused = python("train.py", "env=probe/constant", "trainer.video=true", f"hydra.run.dir={tmp_path / 'no'}")
    assert refused.returncode == 1
    assert refused.stderr.startswith("error: trainer.video, video.py: allowed is an environment that shows pictures")
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "no").exists()
