"""Run directories that nobody trained."""

from __future__ import annotations

import json
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
    **values: Any,
) -> Path:
    """Its evaluations go from 0 to ``score`` on a line; ``algo__gamma=0.9`` sets a key."""
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
    lines = [COLUMNS]
    for i, step in enumerate(np.linspace(steps / rows, steps, rows).astype(int)):
        evaluated = (score or 50.0) * step / steps if i % 2 or rows == 1 else ""
        lines.append(f"{step},{step / 10},250,{evaluated},{i + 1},{i + 1},0.5,0.5")
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    return path
