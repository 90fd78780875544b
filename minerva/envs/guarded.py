"""Environments that can neither hang a run nor end it without a word."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from minerva.errors import UserError
from minerva.types import State, Step


class Guard:
    """Used as ``with guard:`` around an environment's code. What it raises becomes a UserError; if it hangs, the process ends with code 1.

    Nothing less ends what hangs in C. A thread beside it counts the time, so that a process that is stopped and continued is
    not taken for one that hangs. Code that keeps Python's lock while it hangs is beyond it.

    Args:
        what: whose code it is, for messages.
        seconds: how long it may take; None for ever.
        on_hang: given the message before the process ends.
    """

    LOOKS = 20  # in ``seconds``

    def __init__(self, what: str, seconds: float | None, on_hang: Callable[[str], None] | None) -> None:
        self.what, self.on_hang = what, on_hang
        self._inside, self._times = False, 0
        self._closed = threading.Event()
        if seconds is not None:
            threading.Thread(target=self._watch, args=(seconds,), daemon=True).start()

    def __enter__(self) -> None:
        self._inside = True

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._inside = False
        self._times += 1
        if isinstance(error, Exception | SystemExit) and not isinstance(error, UserError):
            raise UserError(f"{self.what} failed: {' '.join(f'{type(error).__name__}: {error}'.split())}") from error

    def beat(self) -> None:
        """Say within the body that it goes on: its time begins anew."""
        self._times += 1

    def close(self) -> None:
        """Watch no longer."""
        self._closed.set()

    def _watch(self, seconds: float) -> None:
        late = times = 0
        while not self._closed.wait(seconds / self.LOOKS):
            late = late + 1 if self._inside and self._times == times else 0
            times = self._times
            if late > self.LOOKS:
                message = f"{self.what} hangs: it takes more than env.timeout={seconds:g} seconds"
                try:
                    sys.stderr.write(f"error: {message}\n")
                finally:
                    self._end(message)

    def _end(self, message: str) -> None:
        try:
            if self.on_hang:
                self.on_hang(message)
        finally:  # whatever cannot be written any more
            os._exit(1)


class GuardedVectorEnv:
    """A :class:`minerva.types.VectorEnv` whose every call is guarded.

    Args:
        make: makes it; this is guarded too. Its ``load_state_dict`` takes what to call in every step as well.
        guard: of it.
    """

    def __init__(self, make: Callable[[], Any], guard: Guard) -> None:
        self.guard = guard
        with guard:
            self.env = make()
        self.spec, self.num_envs, self.stagger = self.env.spec, self.env.num_envs, self.env.stagger

    def reset(self, seed: int) -> np.ndarray:
        """Begin N new episodes."""
        with self.guard:
            return self.env.reset(seed)

    def step(self, action: np.ndarray) -> Step:
        """Step all."""
        with self.guard:
            return self.env.step(action)

    def render(self) -> Any:
        """A picture of the first."""
        with self.guard:
            return self.env.render()

    @property
    def frames_a_second(self) -> float:
        """Of its time."""
        speed: float = self.env.frames_a_second
        return speed

    def close(self) -> None:
        """Release what they hold."""
        self.guard.close()
        self.env.close()

    def state_dict(self) -> State:
        """Theirs."""
        return self.env.state_dict()

    def load_state_dict(self, state: State) -> np.ndarray:
        """Go to where ``state`` was taken; each step that is played again has its own time."""
        with self.guard:
            obs: np.ndarray = self.env.load_state_dict(state, self.guard.beat)
        return obs
