"""How far a sweep is: a table of its jobs, from its files alone, on any machine that sees them.

Whoever sees the directory can ask.

    python scripts/status.py outputs/sweeps/NAME            # once
    python scripts/status.py outputs/sweeps/NAME --watch    # again and again, until all are through
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live

from minerva.cli import entry
from minerva.sweeps.folder import SweepFolder
from minerva.sweeps.launcher import resume
from minerva.sweeps.table import summary, table


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="a sweep's directory")
    parser.add_argument("--watch", action="store_true", help="keep looking")
    args = parser.parse_args()
    folder = SweepFolder(args.sweep)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 200

    def look() -> tuple[Group, bool]:
        states = folder.states()
        open_ = [name for name, state in states.items() if state.status != "finished"]
        going = {"running", "queued"} if folder.manifest["launcher"] == "slurm" else {"running"}
        idle = open_ and not folder.launching() and not any(state.status in going for state in states.values())
        hint = [f"no launcher is at work here; go on with:  {resume(folder)}"] if idle else []
        return Group(table(states, folder), summary(states), *hint), bool(open_) and not idle

    shown, busy = look()
    if not args.watch:
        return console.print(shown, soft_wrap=True)
    with Live(shown, console=console) as live:
        while busy:
            time.sleep(2)
            shown, busy = look()
            live.update(shown)
    return None


if __name__ == "__main__":
    main()
