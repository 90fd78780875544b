"""Episodes as videos."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from minerva.errors import UserError

FASTEST = 50  # frames a second; of what is faster, frames are left out
MARGIN = 8  # pixels


class Recorder:
    """Records an episode of the deterministic policy as an mp4, with its return until then in the corner. The same episode each time.

    Args:
        env: one environment that renders, and is used for nothing else.
        seed: decides the episode.
        max_steps: where it is cut.
        device: where the networks are.

    Raises:
        UserError: the environment shows nothing, or there is no ffmpeg.
    """

    def __init__(self, *, env: Any, seed: int, max_steps: int, device: torch.device | None = None) -> None:
        self.env, self.seed, self.max_steps = env, seed, max_steps
        self.device = device or torch.device("cpu")
        env.reset(seed)
        self._frame()
        try:
            imageio_ffmpeg.get_ffmpeg_exe()
        except RuntimeError as error:
            raise UserError(f"there is no ffmpeg: {_line(error)}") from error

    def __call__(self, actor: Any, path: Path) -> float:
        """Write the video of what ``actor`` does to ``path``, whole or not at all. Returns the episode's return.

        Raises:
            UserError: the environment failed, or the file cannot be written.
        """
        temporary = path.with_name(f".{path.name}")  # the name's end says what is written
        speed = self.env.frames_a_second
        every = math.ceil(speed / FASTEST)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            size = self._frame().shape[1::-1]
            temporary.touch()  # where it cannot be written, this says so, and not ffmpeg
            video = imageio_ffmpeg.write_frames(
                str(temporary), size, fps=speed / every, codec="libx264", macro_block_size=2
            )
            video.send(None)  # it begins
            with contextlib.closing(video):
                total = self._play(actor, lambda step, total: step % every or video.send(self._titled(step, total)))
            imageio_ffmpeg.count_frames_and_secs(str(temporary))  # it is whole: how ffmpeg ended is not told
            os.replace(temporary, path)
        except (OSError, RuntimeError) as error:
            raise UserError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or _line(error)}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()
        return total

    def _play(self, actor: Any, show: Callable[[int, float], Any]) -> float:
        obs, total = self.env.reset(self.seed), 0.0
        for step in range(self.max_steps):
            show(step, total)
            with torch.no_grad():
                action = actor.act(torch.as_tensor(obs, device=self.device)).action
            outcome = self.env.step(action.cpu().numpy())
            obs, total = outcome.obs, total + float(outcome.reward[0])
            if outcome.terminated[0] or outcome.truncated[0]:
                break
        return total

    def _titled(self, step: int, total: float) -> np.ndarray:
        picture = Image.fromarray(self._frame())
        font = ImageFont.load_default(max(10, picture.height // 24))
        ImageDraw.Draw(picture).text(
            (MARGIN, MARGIN), f"return {total:.1f}   step {step}", "white", font, stroke_width=1, stroke_fill="black"
        )
        return np.asarray(picture)

    def _frame(self) -> np.ndarray:
        frame = self.env.render()
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UserError("it shows no pictures")
        return frame


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
