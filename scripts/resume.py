"""Go on with a sweep, as its command would: what is finished is left alone, what is not goes on from its checkpoint.

What is given beside it are more words of that command; what it must not take from the sweep's files, too.

    python scripts/resume.py outputs/sweeps/NAME [hydra.launcher.n_jobs=4 ...]
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from minerva.cli import entry
from minerva.sweeps.folder import MANIFEST, SweepFolder
from minerva.sweeps.words import quoted, split
from minerva.trust import check_kept


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="a sweep's directory")
    parser.add_argument("override", nargs="*", help="beside those that it was begun with")
    args = parser.parse_args()
    folder = SweepFolder(args.sweep.absolute())
    manifest = folder.manifest
    options, overrides = split([str(word) for word in manifest["command"][1:]])
    overrides = [word for word in overrides if word not in args.override]
    check_kept(options, overrides, folder.path / MANIFEST)
    if os.path.isdir(manifest["cwd"]):
        os.chdir(manifest["cwd"])
    script = Path(__file__).absolute().parent.parent / "train.py"
    here = f"hydra.sweep.dir={quoted(folder.path)}"  # wherever it was when it began
    os.execv(sys.executable, [sys.executable, str(script), "-m", *options, *overrides, *args.override, here])


if __name__ == "__main__":
    main()
