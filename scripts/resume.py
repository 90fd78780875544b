"""Go on with a sweep, as its command would: what is finished is left alone, what is not goes on from its checkpoint.

What is given beside it is the launcher's.

    python scripts/resume.py outputs/sweeps/NAME [hydra.launcher.n_jobs=4 ...]
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from minerva.cli import entry
from minerva.sweeps.folder import SweepFolder


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="a sweep's directory")
    parser.add_argument("override", nargs="*", help="of the launcher, beside those that it was begun with")
    args = parser.parse_args()
    manifest = SweepFolder(args.sweep.absolute()).manifest
    if os.path.isdir(manifest["cwd"]):
        os.chdir(manifest["cwd"])
    os.execv(sys.executable, [sys.executable, *manifest["command"], *args.override])


if __name__ == "__main__":
    main()
