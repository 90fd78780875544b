import io
import logging
import math
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from minerva.errors import UserError
from minerva.loggers.console import ConsoleLogger
from minerva.loggers.csv import CSVLogger
from minerva.loggers.group import LoggerGroup
from minerva.loggers.tensorboard import TensorBoardLogger

NAN = math.nan


class TestCSV:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """A file of three rows."""
        path = tmp_path / "metrics.csv"
        logger = CSVLogger(path=path, step=0)
        logger.log({"loss": 0.5, "return": NAN}, 100)
        logger.log({"return": -2.25}, 200)
        logger.log({"return": 7.0, "loss": 0.125}, 300)
        logger.close()
        return path

    def test_columns_stay_and_what_was_not_measured_is_blank(self, path):
        assert path.read_text().splitlines() == ["step,loss,return", "100,0.5,", "200,,-2.25", "300,0.125,7.0"]

    def test_pandas_reads_it(self, path):
        frame = pd.read_csv(path)
        expected = pd.DataFrame({"step": [100, 200, 300], "loss": [0.5, NAN, 0.125], "return": [NAN, -2.25, 7.0]})
        pd.testing.assert_frame_equal(frame, expected)

    def test_numbers_keep_all_of_their_digits(self, tmp_path):
        logger = CSVLogger(path=tmp_path / "metrics.csv", step=0)
        logger.log({"a": 0.1 + 0.2, "b": 1e-300, "c": -math.inf}, 123456789)
        logger.close()
        row = (tmp_path / "metrics.csv").read_text().splitlines()[1].split(",")
        assert [float(cell) for cell in row] == [123456789, 0.1 + 0.2, 1e-300, -math.inf]

    def test_a_row_is_on_disk_at_once(self, tmp_path):
        logger = CSVLogger(path=tmp_path / "metrics.csv", step=0)
        logger.log({"loss": 1.0}, 100)
        assert (tmp_path / "metrics.csv").read_text().splitlines() == ["step,loss", "100,1.0"]
        logger.close()

    def test_a_metric_without_column_is_refused_and_the_file_stays_whole(self, path):
        logger = CSVLogger(path=path, step=300)
        with pytest.raises(UserError, match="no column for new"):
            logger.log({"loss": 1.0, "new": 2.0}, 400)
        logger.log({"loss": 1.0}, 400)
        logger.close()
        assert path.read_text().splitlines()[-2:] == ["300,0.125,7.0", "400,1.0,"]

    @pytest.mark.parametrize("step", [200, 250])
    def test_going_on_drops_the_rows_after_that_step(self, path, step):
        logger = CSVLogger(path=path, step=step)
        logger.log({"return": 9.0, "loss": 3.0}, 300)
        logger.close()
        assert path.read_text().splitlines() == ["step,loss,return", "100,0.5,", "200,,-2.25", "300,3.0,9.0"]
        assert [entry.name for entry in path.parent.iterdir()] == ["metrics.csv"]

    def test_going_on_from_before_the_first_row_begins_again(self, path):
        logger = CSVLogger(path=path, step=0)
        logger.log({"other": 1.0}, 50)
        logger.close()
        assert path.read_text().splitlines() == ["step,other", "50,1.0"]

    @pytest.mark.parametrize("torn", ["4", "400", "400,", "400,0.5"])
    def test_going_on_drops_a_torn_last_line(self, path, torn):
        with open(path, "a") as file:
            file.write(torn)
        logger = CSVLogger(path=path, step=1000)
        logger.log({"loss": 1.0, "return": 2.0}, 1100)
        logger.close()
        assert path.read_text().splitlines()[-2:] == ["300,0.125,7.0", "1100,1.0,2.0"]

    @pytest.mark.parametrize("content", ["", "ste", "step,loss,return\r\n", "step,loss,return\r\n100,0"])
    def test_a_file_without_a_whole_row_is_begun_again(self, tmp_path, content):
        path = tmp_path / "metrics.csv"
        path.write_text(content)
        logger = CSVLogger(path=path, step=1000)
        logger.log({"loss": 1.0}, 1100)
        logger.close()
        assert path.read_text().splitlines() == ["step,loss", "1100,1.0"]

    @pytest.mark.parametrize(
        "damaged",
        [
            "step,loss\nx,1\n",
            "step,loss\n100,1,2\n",
            "st",
            "stp,loss\n100,1\n",
            "step,loss\n\n100,1\n",
            'step,"lo\n100,1\n',
        ],
    )
    def test_a_damaged_file_is_refused_and_left_alone(self, tmp_path, damaged):
        path = tmp_path / "metrics.csv"
        path.write_text(damaged + "200,2\n")
        with pytest.raises(UserError, match=r"metrics\.csv: damaged, "):
            CSVLogger(path=path, step=150)
        assert path.read_text() == damaged + "200,2\n"


class Recorder:
    """Keeps what it was told, and raises where it is asked to."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.rows: list[tuple[dict, int]] = []
        self.closed = 0
        self.maybe_fail("making")

    def maybe_fail(self, where: str) -> None:
        if self.fails == where:
            raise RuntimeError(f"failed in\n{where}")

    def log(self, metrics, step):
        self.maybe_fail("log")
        self.rows.append((dict(metrics), step))

    def close(self):
        self.closed += 1
        self.maybe_fail("close")


class TestGroup:
    @pytest.mark.parametrize("fails", ["making", "log", "close"])
    def test_a_logger_that_fails_is_dropped_with_one_warning_and_the_others_go_on(self, fails, caplog):
        before, after = Recorder(), Recorder()
        with caplog.at_level(logging.WARNING):
            group = LoggerGroup({"before": lambda: before, "bad": lambda: Recorder(fails), "after": lambda: after})
            group.log({"loss": 1.0}, 100)
            group.log({"loss": 2.0}, 200)
            group.close()
        for recorder in (before, after):
            assert recorder.rows == [({"loss": 1.0}, 100), ({"loss": 2.0}, 200)]
            assert recorder.closed == 1
        assert len(caplog.records) == 1
        message = caplog.records[0].getMessage()
        assert "bad" in message
        assert f"failed in {fails}" in message

    def test_a_logger_is_not_asked_again_after_it_failed(self):
        bad = Recorder()
        group = LoggerGroup({"bad": lambda: bad})
        group.log({"loss": 1.0}, 100)
        bad.fails = "log"
        group.log({"loss": 2.0}, 200)
        bad.fails = ""
        group.log({"loss": 3.0}, 300)
        assert bad.rows == [({"loss": 1.0}, 100)]

    def test_ctrl_c_is_not_swallowed(self):
        class Interrupted(Recorder):
            def log(self, metrics, step):
                raise KeyboardInterrupt

        group = LoggerGroup({"slow": Interrupted})
        with pytest.raises(KeyboardInterrupt):
            group.log({}, 0)


class TestConsole:
    METRICS = {  # noqa: RUF012
        "charts/SPS": 12345.6, "train/episode_return": 98.76, "eval/return_mean": 54.32, "losses/value": 1.0,
    }  # fmt: skip

    @staticmethod
    def make(**changes) -> tuple[ConsoleLogger, io.StringIO]:
        output = io.StringIO()
        width, terminal = changes.pop("width", 120), changes.pop("terminal", False)
        console = Console(file=output, force_terminal=terminal, width=width, highlight=False)
        return ConsoleLogger(**({"total_steps": 1000, "step": 0, "console": console} | changes)), output

    def test_without_a_terminal_it_prints_plain_lines(self):
        logger, output = self.make(line_seconds=0, width=20)  # a line is not broken however narrow
        logger.log(self.METRICS, 250)
        logger.log({"train/episode_return": NAN, "charts/SPS": 1.0}, 500)
        logger.close()
        first, second = output.getvalue().splitlines()
        assert first.startswith("250/1,000 steps")
        assert first.endswith("SPS 12,346  return 98.8  eval 54.3")
        assert second.startswith("500/1,000 steps")
        assert second.endswith("SPS 1  return 98.8  eval 54.3"), "what was not measured anew keeps its last value"
        assert "\x1b" not in output.getvalue()

    def test_lines_are_rare_but_the_last_one_is_always_printed(self):
        logger, output = self.make(line_seconds=1e9)
        for step in range(100, 1001, 100):
            logger.log(self.METRICS, step)
        assert [line.split()[0] for line in output.getvalue().splitlines()] == ["100/1,000", "1,000/1,000"]

    def test_a_run_that_goes_on_counts_from_where_it_begins(self):
        logger, output = self.make(step=900, line_seconds=0)
        logger.log({}, 900)
        logger.log({}, 1000)
        assert [line.split()[0] for line in output.getvalue().splitlines()] == ["900/1,000", "1,000/1,000"]
        assert "left 0 s" in output.getvalue().splitlines()[1]

    def test_in_a_terminal_it_draws_a_bar(self):
        logger, output = self.make(terminal=True)
        logger.log(self.METRICS, 500)
        logger.close()
        assert "500/1,000 steps" in output.getvalue()
        assert "\x1b" in output.getvalue()


def scalars(run_dir: Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) by tag, as TensorBoard shows them."""
    events = EventAccumulator(str(run_dir), size_guidance={"scalars": 0}).Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


class TestTensorBoard:
    def test_it_shows_what_was_logged(self, tmp_path):
        logger = TensorBoardLogger(run_dir=tmp_path, step=0, config={})
        logger.log({"losses/value": 0.5, "train/episode_return": NAN}, 100)
        logger.log({"losses/value": 0.25, "train/episode_return": 3.0}, 200)
        logger.close()
        assert scalars(tmp_path) == {"losses/value": [(100, 0.5), (200, 0.25)], "train/episode_return": [(200, 3.0)]}

    def test_going_on_hides_what_came_after_that_step(self, tmp_path):
        logger = TensorBoardLogger(run_dir=tmp_path, step=0, config={})
        for step in (100, 200, 300):
            logger.log({"loss": 1.0}, step)
        logger.close()
        logger = TensorBoardLogger(run_dir=tmp_path, step=200, config={})
        for step in (300, 400):
            logger.log({"loss": 2.0}, step)
        logger.close()
        assert scalars(tmp_path) == {"loss": [(100, 1.0), (200, 1.0), (300, 2.0), (400, 2.0)]}
