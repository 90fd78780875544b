"""Many loggers as one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from minerva.errors import UserError
from minerva.types import Logger

log = logging.getLogger(__name__)


class LoggerGroup:
    """Logs to all of them. One that fails is dropped with a warning, and the run goes on; but for a UserError, which ends it.

    Args:
        makers: what makes each logger, by name.
    """

    def __init__(self, makers: Mapping[str, Callable[[], Logger]]) -> None:
        self._loggers: dict[str, Logger] = {}
        for name, make in makers.items():
            try:
                self._loggers[name] = make()
            except UserError:
                raise
            except Exception as error:  # whatever a third party's code may raise
                self._warn(name, error)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """One row to all."""
        self._each(lambda logger: logger.log(metrics, step))

    def video(self, path: Path, step: int) -> None:
        """A video to all."""
        self._each(lambda logger: logger.video(path, step))

    def flush(self) -> None:
        """Flush all."""
        self._each(lambda logger: logger.flush())

    def close(self) -> None:
        """Close all."""
        for name, logger in self._loggers.items():
            try:
                logger.close()
            except Exception as error:
                self._warn(name, error)

    def _each(self, do: Callable[[Logger], None]) -> None:
        for name, logger in list(self._loggers.items()):
            try:
                do(logger)
            except UserError:
                raise
            except Exception as error:
                self._warn(name, error)
                with contextlib.suppress(Exception):
                    self._loggers.pop(name).close()

    @staticmethod
    def _warn(name: str, error: Exception) -> None:
        log.warning("logger %s: off for the rest of this run: %s", name, " ".join(str(error).split()))
