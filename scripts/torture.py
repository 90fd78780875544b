"""Kill runs again and again, at random moments and in the middle of writing a checkpoint, and see that each ends as one left alone.

Each case trains once undisturbed. Then it trains in another directory, where SIGKILL ends it, and the same command goes on, until it is
through; a case whose run is through before its share of the kills is repeated with the next seed. What must be equal, bit for bit: all of
metrics.csv and of what TensorBoard shows, but the clock (time/*, charts/SPS), and every number of the last checkpoint but the clock's.

    python scripts/torture.py --kills 100 --seed 0        # about half an hour
"""

from __future__ import annotations

import argparse
import csv
import itertools
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from minerva.checkpoint import load

ROOT = Path(__file__).parent.parent
logging.getLogger("tensorboard").setLevel("ERROR")  # it remarks on every time that a run went on
COMMON = ("trainer.logs=40", "trainer.evaluations=5", "trainer.eval_episodes=2", "trainer.final_eval_episodes=2",
          "trainer.checkpoints=1000", "threads=1", "env.threads=1")  # fmt: skip
SMALL = ("env.num_envs=8", "algo.num_steps=32", "algo.minibatch_size=128")
# Between them: both algorithms, all backends, compiled steps, rewards that are scaled, updates that may be taken back.
CASES = {
    "PPO, gymnasium": ("algo=ppo", "env=gymnasium/CartPole-v1", "env.backend=gymnasium", "reward.scale=true",
                       "trainer.total_steps=40_000"),
    "PPO, dm_control": ("algo=ppo", "env=dm_control/reacher/easy", "env.backend=gymnasium", *SMALL, "trainer.non_finite=skip",
                        "trainer.total_steps=20_000", "logger=[]"),
    "PPO, EnvPool": ("algo=ppo", "env=dm_control/cheetah/run", "env.backend=envpool", *SMALL, "compile=true",
                     "trainer.total_steps=60_000"),
    "V-MPO, gymnasium": ("algo=vmpo", "env=gymnasium/Pendulum-v1", "env.backend=gymnasium", *SMALL, "compile=true",
                         "trainer.total_steps=40_000", "logger=[]"),
    "V-MPO, dm_control": ("algo=vmpo", "env=dm_control/cartpole/swingup", "env.backend=gymnasium", *SMALL,
                          "trainer.total_steps=20_000"),
    "V-MPO, EnvPool": ("algo=vmpo", "env=gymnasium/Acrobot-v1", "env.backend=envpool", *SMALL, "trainer.total_steps=60_000",
                       "logger=[]"),
}  # fmt: skip


@dataclass
class Tally:
    """What became of a case."""

    runs: int = 0
    kills: int = 0
    while_writing: int = 0
    differences: list[str] = field(default_factory=list)


def start(case: str, seed: int, run: Path) -> subprocess.Popen[bytes]:
    log = open(run.with_suffix(".log"), "ab")
    (run / "checkpoints" / "last.tmp").unlink(missing_ok=True)  # of the last kill: the next one waits for a new one
    command = [sys.executable, "train.py", *CASES[case], *COMMON, f"seed={seed}", f"hydra.run.dir={run}"]
    return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)


def kill(process: subprocess.Popen[bytes], run: Path, rng: random.Random) -> str:
    """Wait for a random moment, or for one in which a checkpoint is written, and kill. Says which, or ``"through"``."""
    checkpoint = run / "checkpoints" / "last.tmp"
    while_writing = rng.random() < 0.5
    until = time.monotonic() + rng.uniform(0.5, 8)
    while process.poll() is None:
        late = time.monotonic() > until
        if late and (not while_writing or checkpoint.exists()):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "writing" if while_writing else "random"
        time.sleep(0 if late else 0.01)
    if process.returncode:
        sys.exit(f"{run}: ended with code {process.returncode}:\n{run.with_suffix('.log').read_text()[-2000:]}")
    return "through"


def differences(one: Path, other: Path) -> list[str]:
    """What is not the same in two runs that are through."""
    found = []
    tables = []
    for run in (one, other):
        with open(run / "metrics.csv", newline="") as file:
            tables.append(list(csv.DictReader(file)))
    for a, b in itertools.zip_longest(*tables, fillvalue={}):
        for key in dict.fromkeys([*a, *b]):
            if key != "charts/SPS" and not key.startswith("time/") and a.get(key) != b.get(key):
                found.append(f"metrics.csv, step {a.get('step')}: {key} is {a.get(key)}, and {b.get(key)}")
    shown = [scalars(run) for run in (one, other)]
    found += [f"TensorBoard: {tag}" for tag in sorted({*shown[0], *shown[1]}) if shown[0].get(tag) != shown[1].get(tag)]
    ends = [load(run / "checkpoints" / "last.pt") for run in (one, other)]
    for end in ends:
        for name in [name for name in end["state"]["clock"] if name.endswith("seconds")]:
            del end["state"]["clock"][name]
    return found[:5] + unequal(ends[0]["state"], ends[1]["state"], "last.pt")[:3]


def scalars(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run, (step, value) by tag, but for the clock."""
    events = EventAccumulator(str(run), size_guidance={"scalars": 0}).Reload()
    tags = [tag for tag in events.Tags()["scalars"] if tag != "charts/SPS" and not tag.startswith("time/")]
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags}


def unequal(a: Any, b: Any, where: str) -> list[str]:
    """Where two nested values differ in a bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        return [] if same else [where]
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        return [place for key in a for place in unequal(a[key], b[key], f"{where} {key}")]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        return [place for i, pair in enumerate(zip(a, b, strict=True)) for place in unequal(*pair, f"{where} {i}")]
    return [] if repr(a) == repr(b) else [where]


def torture(case: str, kills: int, rng: random.Random, folder: Path) -> Tally:
    """Runs of ``case``, until it was killed so often."""
    tally = Tally()
    for seed in itertools.count():
        name = case.lower().replace(", ", "_")
        whole, killed = (folder / f"{name}_{seed}_{kind}" for kind in ("whole", "killed"))
        if start(case, seed, whole).wait():
            sys.exit(f"{whole}: ended with an error:\n{whole.with_suffix('.log').read_text()[-2000:]}")
        while True:
            process = start(case, seed, killed)
            if tally.kills >= kills:
                process.wait()
            how = kill(process, killed, rng)
            if how == "through":
                break
            tally.kills += 1
            tally.while_writing += how == "writing"
        tally.runs += 1
        tally.differences += [f"{case}, seed {seed}: {what}" for what in differences(whole, killed)]
        print(
            f"{case}: {tally.kills}/{kills} kills, {tally.while_writing} of them while a checkpoint was written, {tally.runs} runs, "
            f"{len(tally.differences)} differences",
            flush=True,
        )
        if tally.kills >= kills or tally.differences:
            return tally
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="in all (default 100)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (default 0)")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="(default: all)")
    args = parser.parse_args()
    rng, began = random.Random(args.seed), time.monotonic()
    share = -(-args.kills // len(args.cases))
    with tempfile.TemporaryDirectory() as folder:
        tallies = {case: torture(case, share, rng, Path(folder)) for case in args.cases}
    print("\n| case | runs | kills | while a checkpoint was written | differences |\n|---|---|---|---|---|")
    for case, tally in tallies.items():
        print(f"| {case} | {tally.runs} | {tally.kills} | {tally.while_writing} | {len(tally.differences)} |")
    found = [what for tally in tallies.values() for what in tally.differences]
    print("\n".join(found) or f"all equal, after {time.monotonic() - began:.0f} s")
    raise SystemExit(1 if found else 0)


if __name__ == "__main__":
    main()
