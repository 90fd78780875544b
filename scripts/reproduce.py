"""Run a run again from its saved configuration, in a new directory, and say whether it was the same.

The rows of metrics.csv are compared, but for the clock (time/*, charts/SPS), and, of a whole run, the parameters at its end. What differs
in the surroundings (commit, changes, packages, CPU) is shown beside it.

    python scripts/reproduce.py outputs/ppo/.../                     # all of it
    python scripts/reproduce.py outputs/ppo/.../ --steps 100_000     # as far as there
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from minerva import config
from minerva.cli import entry
from minerva.errors import UserError
from minerva.run import has_checkpoint

ROOT = Path(__file__).parent.parent
SURROUNDINGS = ("cpu", "host", "python", "packages", "git")
FILES = ("changes.patch", "freeze.txt")


def rows(run: Path, steps: int | None) -> list[dict[str, str]]:
    """The rows of metrics.csv, as they are written, to ``steps``; without the clock."""
    try:
        with open(run / "metrics.csv", newline="", encoding="utf-8") as file:
            found = list(csv.DictReader(line for line in file if line.endswith("\n")))
        return [
            {key: value for key, value in row.items() if key != "charts/SPS" and not key.startswith("time/")}
            for row in found
            if int(row["step"]) <= (math.inf if steps is None else steps)
        ]
    except FileNotFoundError:
        return []
    except (AttributeError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{run / 'metrics.csv'}: these are not the metrics of a run") from error


def train(run: Path, out: Path, steps: int | None) -> None:
    """Train as ``run`` did, in ``out``; no further than it takes."""
    command = [sys.executable, "train.py", "-cp", str(run / ".hydra"), "-cn", "config", f"hydra.run.dir={out}"]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        while process.poll() is None:
            time.sleep(0.2)
            if steps is not None and any(int(row["step"]) >= steps for row in rows(out, None)):
                process.send_signal(signal.SIGTERM)
                process.wait()
    except KeyboardInterrupt:
        process.wait()
        raise
    if process.returncode not in (0, 128 + signal.SIGTERM):
        raise UserError(f"{out}: it ended with code {process.returncode}; what it said is above")


def first_difference(one: list[dict[str, str]], other: list[dict[str, str]]) -> str | None:
    """The first row and column that are not the same."""
    for a, b in itertools.zip_longest(one, other):
        if a is None or b is None:
            return f"one ends before step {(a or b)['step']}, the other does not"
        for key in dict.fromkeys([*a, *b]):
            if a.get(key) != b.get(key):
                return f"at step {a['step']}, {key} was {a.get(key)} and is {b.get(key)}"
    return None


def parameters(run: Path) -> tuple[int, dict[str, Any]]:
    """The step of a run's last checkpoint, and the tensors of its network."""
    from minerva.checkpoint import load

    path = run / "checkpoints" / "last.pt"
    end = load(path)
    try:
        return end["step"], dict(end["state"]["algo"]["network"])
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{path}: there is no network in it") from error


def parameters_differ(one: Path, other: Path) -> str | None:
    """The first tensor of the two runs' last checkpoints that is not the same, where both are whole runs."""
    import torch

    (step, network), (other_step, other_network) = parameters(one), parameters(other)
    if step != other_step:
        return None
    for name, tensor in network.items():
        if not torch.equal(tensor, other_network[name]):
            return f"after step {step}, the parameters {name}"
    return None


def recorded(run: Path) -> dict[str, Any]:
    """What ``run.json`` says."""
    try:
        facts = json.loads((run / "run.json").read_text())
    except ValueError as error:
        raise UserError(f"{run / 'run.json'}: cannot be read: {error}") from error
    if not isinstance(facts, dict):
        raise UserError(f"{run / 'run.json'}: these are not the facts of a run")
    return facts


def surroundings(one: Path, other: Path) -> list[str]:
    """A line for each fact in which the two runs' surroundings differ."""

    def read(run: Path) -> dict[str, Any]:
        facts, flat = recorded(run), {}
        for name in SURROUNDINGS:
            value = facts.get(name)
            flat |= {f"{name} {key}": v for key, v in value.items()} if isinstance(value, dict) else {name: value}
        for name in FILES:
            flat[name] = (run / name).read_bytes() if (run / name).exists() else b""
        return flat

    was, now = read(one), read(other)
    return [
        f"{key} differs" if key in FILES else f"{key} was {was.get(key)} and is {now.get(key)}"
        for key in was
        if was[key] != now.get(key)
    ]


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--steps", type=int, help="compare no further than there (default: all)")
    parser.add_argument("--out", type=Path, help="the new directory (default: beside the other)")
    args = parser.parse_args()
    run, steps = args.run.resolve(), args.steps
    config.load(run)  # complains, if it is no run
    if not (was := rows(run, steps)):
        raise UserError(f"{args.run}: there are no rows{f' to step {steps}' if steps else ''} in its metrics.csv")
    out = (args.out or run.with_name(f"{run.name}_again_{datetime.now():%Y-%m-%d_%H-%M-%S}")).resolve()
    if has_checkpoint(out):
        raise UserError(f"--out {out}: there is a run already; allowed is a new directory")
    config.check_place("--out", str(out))
    whole, described = steps is None and has_checkpoint(run), (run / "run.json").exists()
    if described:
        recorded(run)
    if whole:
        parameters(run)  # it would be a pity to find it damaged at the end
    train(run, out, steps)

    last = int(was[-1]["step"])
    different = first_difference(was, rows(out, last))
    different = different or (parameters_differ(run, out) if whole else None)
    others = surroundings(run, out) if described else ["the run has no run.json"]
    print(
        f"different: {different}"
        if different
        else f"identical: {len(was)} rows to step {last:,}" + ", and the parameters" * whole
    )
    for line in others:
        print(f"  surroundings: {line}")
    if not others:
        print("  surroundings: the same")
    print(f"  the new run is in {out}")
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
