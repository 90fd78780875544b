"""train.py without the training: what a sweep costs beside its jobs' work. See ``scripts/bench.py --thousand``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import hydra
from omegaconf import DictConfig

from minerva import cli, config
from minerva.run import Run

config.register()
HEADER = "step,charts/SPS,time/rollout,time/update,time/eval,time/save\n"


@cli.entry
@hydra.main(config_path="../conf", config_name="train", version_base="1.3")
def main(cfg: DictConfig) -> float:
    """Do nothing; returns the seed."""
    with cli.one_line_errors(), Run(config.run_dir()) as run:
        run.begin("")
        rows = "".join(f"{step},{step / 7},1.0,2.0,3.0,4.0\n" for step in range(5000, 1_000_001, 5000))
        (run.run_dir / "metrics.csv").write_text(HEADER + rows)
        return run.finish(float(cfg.seed))


if __name__ == "__main__":
    main()
