"""Run directories that nobody trained; by itself, a thousand of them for ``scripts/bench.py --report``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

COLUMNS = "step,train/episode_return,charts/SPS,eval/return_mean,time/rollout,time/update,time/eval,time/save"


def make_run(
    path: Path,
    *,
    algo: str = "ppo.PPO",
    env: str = "dm_control/cheetah-run-v0",
    seed: int = 0,
    score: float | None = 100.0,
    status: str = "finished",
    steps: int = 1000,
    rows: int = 10,
    end: str = "2026-01-01",
    metrics: int = 0,
    **values: Any,
) -> Path:
    """With so many more ``metrics``. Its evaluations go from 0 to ``score`` on a line; ``algo__gamma=0.9`` sets a key."""
    (path / ".hydra").mkdir(parents=True)
    config = OmegaConf.create(
        {
            "seed": seed,
            "device": "cpu",
            "algo": {"_target_": f"minerva.algos.{algo}", "gamma": 0.99, "learning_rate": 1e-05},
            "env": {"id": env, "num_envs": 4},
            "network": {"policy_layers": [8, 8], "backbone": None},
            "trainer": {"total_steps": steps, "logs": 200},
        }
    )
    for key, value in values.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    OmegaConf.save(config, path / ".hydra" / "config.yaml")
    facts = {"status": status, "reason": "RuntimeError: no" if status == "failed" else None, "score": score, "end": end}
    (path / "run.json").write_text(
        json.dumps(facts | {"host": "elsewhere", "cpu": "a CPU", "git": {"commit": "abcdef123"}})
    )
    lines = [COLUMNS + "".join(f",losses/{i}" for i in range(metrics))]
    for i, step in enumerate(np.linspace(steps / rows, steps, rows).astype(int)):
        evaluated = (score or 50.0) * step / steps if i % 2 or rows == 1 else ""
        lines.append(f"{step},{step / 10},250,{evaluated},{i + 1},{i + 1},0.5,0.5" + f",{step / 7}" * metrics)
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    return path


def make_a_thousand(folder: Path) -> None:
    """Of 25 tasks, two methods and 20 seeds, as large as real ones."""
    keys = {f"algo__key{i}": i for i in range(100)}
    for i in range(1000):
        env, gamma = f"dm_control/task-{i // 40}-v0", (0.9, 0.99)[i // 20 % 2]
        make_run(folder / str(i), seed=i % 20, env=env, algo__gamma=gamma, rows=500, metrics=17, **keys)


if __name__ == "__main__":
    make_a_thousand(Path(sys.argv[1]))
