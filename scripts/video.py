"""A video of what a run learned: one episode of the deterministic policy, with its return in the corner. It needs no display.

python scripts/video.py outputs/ppo/...                       # of the best checkpoint, to RUN/videos/best.mp4
python scripts/video.py outputs/ppo/... --checkpoint last --seed 3
"""

from __future__ import annotations

import argparse
from pathlib import Path

from minerva import config
from minerva.cli import entry


@entry
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--checkpoint", choices=["best", "last", "failed"], default="best", help="(default: best)")
    parser.add_argument("--out", type=Path, help="where to (default: RUN/videos/CHECKPOINT.mp4)")
    parser.add_argument("--seed", type=int, help="of the episode (default: the run's)")
    args = parser.parse_args()
    out: Path = args.out or args.run / "videos" / f"{args.checkpoint}.mp4"
    if out.suffix != ".mp4":
        parser.error(f"--out={out}: allowed is a name that ends in .mp4")
    from minerva.policy import load_policy
    from minerva.seeding import derive

    policy = load_policy(args.run, args.checkpoint)
    cfg = config.load(args.run)
    seed = derive(cfg.seed if args.seed is None else args.seed, "video")
    total = config.recorder(cfg, seed=seed)(policy.algo.actor, out)
    print(f"{out}: {args.checkpoint} checkpoint at step {policy.step:,}, return {total:.1f}")


if __name__ == "__main__":
    main()
