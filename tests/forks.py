"""Runs scripts as ``python SCRIPT ARGUMENTS`` does, many times as fast: modules are imported once, and each script is a fork of that.

python tests/forks.py MODULE... < CASES > RESULTS, both lists in JSON. A case is {"argv": ["train.py", ...], "cwd": ..., "env": {...},
"without": [modules that it must not import], "seconds": after which it is taken to hang}; its result {"code": ..., "output": stdout and
stderr}; the code is None where it had to be killed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import sys
import tempfile
import threading
import traceback
from typing import Any, NoReturn


def become(case: dict[str, Any], output: int) -> NoReturn:
    """Be what ``python`` is with the case's arguments, and end as it does; but memory, which takes long, is not tidied up."""
    os.setsid()  # what it starts is killed with it
    os.chdir(case["cwd"])
    os.environ |= case["env"]
    for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, stream)
    sys.argv = case["argv"]
    sys.path[:0] = [os.path.dirname(sys.argv[0]), *filter(None, case["env"].get("PYTHONPATH", "").split(":"))]
    sys.modules.update(dict.fromkeys(case["without"]))  # type: ignore[arg-type]  # what Python has for one that cannot be
    code: Any = None
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else bool(code))


def waited_for(child: int, seconds: float) -> int | None:
    """The exit code of ``child``, as subprocess has it; None if it did not end."""
    handle = os.pidfd_open(child)
    ended, *_ = select.select([handle], [], [], seconds)
    os.close(handle)
    if not ended:
        os.killpg(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if ended else None


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    cases, results = json.load(sys.stdin), []
    del sys.path[0]  # this file's directory
    gc.freeze()  # pages that the forks need not copy
    for case in cases:
        with tempfile.TemporaryFile() as output:
            if (child := os.fork()) == 0:
                become(case, output.fileno())
            code = waited_for(child, case["seconds"])
            output.seek(0)
            results.append({"code": code, "output": output.read().decode(errors="replace")})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
