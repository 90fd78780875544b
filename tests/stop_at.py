"""Runs train.py with the arguments after the first, and fails in the first update after that many steps."""

import runpy
import sys

from minerva.algos.ppo import PPO
from minerva.algos.vmpo import VMPO

limit, done = int(sys.argv[1]), 0


def stopping(update):
    def stop(self, rollout, progress):
        global done
        if done > limit:
            raise RuntimeError("stopped by the test")
        done += rollout.reward.numel()
        return update(self, rollout, progress)

    return stop


for algo in (PPO, VMPO):
    algo.update = stopping(algo.update)
sys.argv = ["train.py", *sys.argv[2:]]
runpy.run_path("train.py", run_name="__main__")
