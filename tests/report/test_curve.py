"""The picture at the end of a run."""

from __future__ import annotations

import numpy as np
from PIL import Image

from minerva.report.curve import learning_curve
from tests.report.runs import make_run


def test_both_returns_are_drawn(tmp_path):
    run = make_run(tmp_path / "a", steps=2_000_000)
    learning_curve(run, "PPO on a task")
    picture = np.asarray(Image.open(run / "learning_curve.png").convert("RGB"))
    colours = {tuple(pixel) for pixel in picture.reshape(-1, 3)}
    assert {(0x00, 0x72, 0xB2), (0x56, 0xB4, 0xE9)} <= colours, "evaluations, and what was learned from"
    again = (run / "learning_curve.png").read_bytes()
    learning_curve(run, "PPO on a task")
    assert (run / "learning_curve.png").read_bytes() == again


def test_what_cannot_be_drawn_is_a_warning(tmp_path, caplog):
    learning_curve(tmp_path, "nothing")
    assert "no learning_curve.png: FileNotFoundError" in caplog.text
    (tmp_path / "metrics.csv").write_text("step,eval/return_mean\n")
    learning_curve(tmp_path, "no rows")
    assert "no learning_curve.png: IndexError" in caplog.text
    assert not (tmp_path / "learning_curve.png").exists()
