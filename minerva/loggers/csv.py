"""``metrics.csv``: the ground truth of a run."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from minerva.errors import UserError


class CSVLogger:
    """One row a logging step: ``step``, then the columns of the first row, in its order. What was not measured is blank.

    Args:
        path: the file; rows after ``step`` are dropped when a run goes on from there.
        step: the step a run begins at.

    Raises:
        UserError: the file cannot be written, without which there is nothing to be known of a run.
    """

    def __init__(self, *, path: Path, step: int) -> None:
        self.path = path
        self._columns: list[str] = []
        with self._writing():
            if path.exists():
                self._rewind(step)
            self._file = open(path, "a", newline="", encoding="utf-8")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append one row, for others to see at once.

        Raises:
            UserError: it cannot be written; or a metric has no column, since the first row did not have it.
        """
        first = not self._columns
        if first:
            self._columns = ["step", *metrics]
        if unknown := sorted(set(metrics) - set(self._columns)):
            raise UserError(f"{self.path}: no column for {', '.join(unknown)}, which its first row did not have")
        row = {"step": step, **{k: v for k, v in metrics.items() if not math.isnan(v)}}
        rows = [self._columns] if first else []
        with self._writing():
            csv.writer(self._file).writerows([*rows, [row.get(column, "") for column in self._columns]])
            self._file.flush()

    def video(self, path: Path, step: int) -> None:
        """Nothing: it is a file by itself."""

    def flush(self) -> None:
        """Have the rows on disk.

        Raises:
            UserError: they cannot be written.
        """
        with self._writing():
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):  # what could not be written then cannot be now, and that was said
            self._file.close()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written: {error.strerror or error}") from error

    def _rewind(self, step: int) -> None:
        with open(self.path, newline="", encoding="utf-8") as file:
            lines = [line for line in file if line.endswith("\n")]  # a last row cut short by a crash is not whole
        try:
            rows = list(csv.reader(lines, strict=True))
            self._columns = rows[0] if rows else []
            if any(len(row) != len(self._columns) for row in rows) or self._columns[:1] not in ([], ["step"]):
                raise ValueError("rows and columns do not fit")
            whole = [row for row in rows[1:] if int(row[0]) <= step]
        except (ValueError, csv.Error) as error:
            raise UserError(f"{self.path}: damaged, {error}; move it away to go on without the rows before") from error
        if not whole:
            self._columns = []
            return self.path.unlink()
        temporary = self.path.with_suffix(".tmp")
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self._columns, *whole])
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)
