"""A signal to end is a wish: the training loop finishes what it is at, saves, and ends with a code that says which it was."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class Stopped(Exception):
    """Raised once all is saved. ``code`` is what the process exits with: 128 plus the signal's number, as a shell has it."""

    def __init__(self, received: signal.Signals) -> None:
        super().__init__(received.name)
        self.code = 128 + received


class Signals:
    """Notes the first SIGINT, SIGTERM, SIGUSR1 or SIGUSR2 that arrives within a ``with``; a SIGINT after it ends at once.

    Only a process's main thread can; elsewhere it notes nothing.

    Attributes:
        received: the first of them, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            again = "; Ctrl-C again to end at once" if number == signal.SIGINT else ""
            sys.stderr.write(f"{self.received.name}: saving after this rollout and its update{again}\n")
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
