"""From a mistake to one clear line, and an exit code."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from minerva import trust
from minerva.errors import UserError
from minerva.explain import explain
from minerva.signals import Stopped

# What a command line, or a file that it names, may lead to on the way to a job.
MISTAKES = (HydraException, OmegaConfBaseException, YAMLError, UserError, OSError, ValueError, RecursionError)
# Whether the user wants tracebacks; HYDRA_FULL_ERROR is set for Hydra by entry() too, and inherited by child processes.
FULL_ERROR = os.environ.get("HYDRA_FULL_ERROR") == "1" and "MINERVA_ONE_LINE" not in os.environ

LESS = "try fewer env.num_envs or algo.num_steps, or narrower network layers"


def entry(main: Callable[[], None]) -> Callable[[], None]:
    """Show a user's mistake in one line on stderr and exit with 1; HYDRA_FULL_ERROR=1 shows the traceback as well."""

    @functools.wraps(main)
    def wrapped() -> None:
        if not FULL_ERROR:
            os.environ["HYDRA_FULL_ERROR"] = os.environ["MINERVA_ONE_LINE"] = "1"  # Hydra raises, and does not explain
        try:
            if any(argument.startswith(("-c", "--c")) for argument in sys.argv[1:]):
                known, _ = get_args_parser().parse_known_args(sys.argv[1:])
                trust.isolate(known.config_path, known.config_name, Path(sys.argv[0]).resolve())
            main()
        except MISTAKES as error:
            fail(error)

    return wrapped


@contextmanager
def one_line_errors() -> Iterator[None]:
    """The same for the body of a job; what is not the user's mistake keeps its traceback.

    In a sweep the error goes on to the launcher, whose other jobs run on.
    """
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and leave things as an error does
        yield
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        raise SystemExit(130) from None
    except Stopped as stopped:
        sys.stderr.write(f"{stopped}: saved and stopped\n")
        raise SystemExit(stopped.code) from None
    except Exception as error:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            raise
        if isinstance(error, OmegaConfBaseException | UserError):
            fail(error)
        if isinstance(error, MemoryError) or re.search("allocate memory|out of memory", str(error)):
            fail(UserError(f"there is not enough memory here; {LESS}"))
        traceback.print_exception(error)
        raise SystemExit(1) from None


def fail(error: Exception) -> NoReturn:
    """Print one line that says what was wrong, and exit with 1."""
    if FULL_ERROR:
        traceback.print_exception(error)
    sys.stderr.write(f"error: {explain(error)}\n")
    raise SystemExit(1)
