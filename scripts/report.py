"""What runs say together: tables with intervals, learning curves, what differs, cost, and published numbers beside them.

Reads run directories alone, and writes report.md, index.html (one file, with its figures within) and figures/*.png and *.svg.

    python scripts/report.py outputs                                   # all there is, any mix of runs and sweeps
    python scripts/report.py outputs/sweeps/first algo.gamma=0.99      # those with a value; env, algo, seed and status work too
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minerva.cli import entry


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", help="directories with runs within; and key=value, which they must have")
    parser.add_argument("--out", type=Path, default=Path("report"), help="where to (default: report)")
    args = parser.parse_args()

    from minerva.report import page
    from minerva.runs import filtered, read_runs

    # Names of jobs have a "=" within, those of keys no "/".
    given = [(text, Path(text).exists() or "/" in text.partition("=")[0] or "=" not in text) for text in args.runs]
    records = filtered(
        read_runs(*([text for text, path in given if path] or ["outputs"])), [t for t, path in given if not path]
    )
    written = page.write(records, args.out)
    print(
        f"{len(records)} run{'s' * (len(records) != 1)}: {written[0]}, {written[1]} and {len(written) - 2} figures; open {written[0]} in a browser"
    )


if __name__ == "__main__":
    main()
