"""``metrics.csv``: the ground truth of a run."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping
from pathlib import Path


class CSVLogger:
    """One row a logging step: ``step``, then the columns of the first row, in its order. What was not measured is blank.

    Args:
        path: the file; rows after ``step`` are dropped when a run goes on from there.
        step: the step a run begins at.
    """

    def __init__(self, *, path: Path, step: int) -> None:
        self.path = path
        self._columns: list[str] = []
        if path.exists():
            self._rewind(step)
        self._file = open(path, "a", newline="", encoding="utf-8")

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append one row, at once on disk.

        Raises:
            ValueError: a metric has no column, since the first row did not have it.
        """
        writer = csv.writer(self._file)
        if not self._columns:
            self._columns = ["step", *metrics]
            writer.writerow(self._columns)
        if unknown := sorted(set(metrics) - set(self._columns)):
            raise ValueError(f"{self.path}: no column for {', '.join(unknown)}")
        row = {"step": step, **{k: v for k, v in metrics.items() if not math.isnan(v)}}
        writer.writerow([row.get(column, "") for column in self._columns])
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _rewind(self, step: int) -> None:
        with open(self.path, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(line for line in file if line.endswith("\n")))
        self._columns = rows[0] if rows else []
        # A last row cut short by a crash is not whole.
        whole = [row for row in rows[1:] if len(row) == len(self._columns) and int(row[0]) <= step]
        temporary = self.path.with_suffix(".tmp")
        with open(temporary, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([self._columns, *whole] if self._columns else [])
        os.replace(temporary, self.path)
        if not whole:
            self._columns = []
            self.path.unlink()
