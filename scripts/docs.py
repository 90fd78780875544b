"""Build the documentation into site/, which works from a folder and fetches nothing.

It fails on a broken link, a formula that does not parse, or a public name without a docstring.

    python scripts/docs.py            # then open site/index.html
    python scripts/docs.py --serve    # and keep it at http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from minerva.cli import entry


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="show it to a browser, as it is now, until Ctrl-C")
    parser.add_argument("--out", type=Path, default=Path("site"), help="where to (default: site)")
    args = parser.parse_args()
    from minerva.site.build import assemble, keep_here

    with tempfile.TemporaryDirectory(prefix="minerva-") as folder:
        build(assemble(Path(folder), args.out.absolute()), args.serve)
    keep_here(args.out)
    print(f"open {args.out / 'index.html'}")


def build(config: Path, serve: bool) -> None:
    """Let MkDocs do it. It is not told to be quiet, for then it would not count its warnings, which are failures."""
    command = [sys.executable, "-m", "mkdocs", "serve" if serve else "build", "-f", str(config)]
    try:
        done = subprocess.run(
            command,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
            stderr=None if serve else subprocess.PIPE,
            text=True,
            check=False,
        )
    except KeyboardInterrupt:  # the end of --serve
        raise SystemExit(130) from None
    if done.returncode:
        said = [line for line in (done.stderr or "").splitlines() if not line.startswith("INFO")]
        raise SystemExit("\n".join(said) or done.returncode)


if __name__ == "__main__":
    main()
