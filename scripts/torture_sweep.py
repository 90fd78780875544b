"""Kill a third of a sweep's jobs at random moments, repeat its command until all are through, and see that nothing is different.

A sweep of 2 algorithms x 2 tasks x 3 seeds is run undisturbed. Then it is run in another directory, where SIGKILL ends jobs while they train, and
the same command is given again, until it ends well. What must be equal, bit for bit, is what torture.py compares; and what was
finished once must not have been touched again.

    python scripts/torture_sweep.py --seed 0        # about 5 minutes
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from torture import ROOT, differences

from minerva.sweeps.folder import SweepFolder

SWEEP = ("algo=ppo,vmpo", "env=dm_control/cartpole/swingup,gymnasium/CartPole-v1", "seed=0,1,2", "env.num_envs=8", "algo.num_steps=32",
         "algo.minibatch_size=128", "trainer.total_steps=40_000", "trainer.checkpoints=100", "trainer.logs=40", "trainer.evaluations=5",
         "trainer.eval_episodes=2", "trainer.final_eval_episodes=2", "compile=false")  # fmt: skip


def start(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "train.py", "-m", *SWEEP, f"hydra.sweep.dir={folder}"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def process_of(run: Path) -> int | None:
    """The process that trains in ``run``."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            arguments = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"hydra.run.dir='{run}'".encode() in arguments:
            return int(path.parent.name)
    return None


def disturb(folder: Path, launcher: subprocess.Popen[bytes], victims: dict[str, float]) -> list[str]:
    """Kill each of ``victims`` once it has trained for so many seconds, while ``launcher`` is at work; the names of those killed."""
    killed, seen = [], dict[str, float]()
    while launcher.poll() is None:
        for name, seconds in victims.items():
            if name not in killed and (folder / name / "metrics.csv").exists():
                began = seen.setdefault(name, time.monotonic())
                pid = process_of(folder / name) if time.monotonic() > began + seconds else None
                if pid is not None:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(name)
        time.sleep(0.05)
    return killed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="of the victims and the moments (default 0)")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as temporary:
        whole, killed = Path(temporary) / "whole", Path(temporary) / "killed"
        if start(whole).wait():
            sys.exit(f"the undisturbed sweep failed: {[*(whole / 'logs').glob('*.log')]}")
        names = [job.name for job in SweepFolder(whole).jobs()]
        deaths, turns, finished, again = 0, 0, dict[str, int](), 0
        while True:
            left = [name for name in names if name not in finished]
            victims = {name: rng.uniform(0, 4) for name in rng.sample(left, -(-len(left) // 3))} if turns < 3 else {}
            turns += 1
            launcher = start(killed)
            deaths += len(disturb(killed, launcher, victims))
            for name in names:
                run_json = killed / name / "run.json"
                if json.loads(run_json.read_text())["status"] == "finished":
                    stamp = run_json.stat().st_mtime_ns
                    again += finished.setdefault(name, stamp) != stamp
            print(
                f"turn {turns}: {len(victims)} to be killed, {deaths} killed so far, {len(finished)} of {len(names)} finished",
                flush=True,
            )
            if launcher.returncode == 0:
                break
        found = [f"{name}: {what}" for name in names for what in differences(whole / name, killed / name)]
    print(
        f"{len(names)} jobs, {deaths} killed in {turns} turns, {again} finished ones touched again, {len(found)} differences"
    )
    print("\n".join(found))
    raise SystemExit(1 if found or again else 0)


if __name__ == "__main__":
    main()
