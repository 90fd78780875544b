"""Score what a run learned: the deterministic policy, in episodes of its own."""

import argparse
from pathlib import Path

from minerva import config
from minerva.cli import entry


@entry
def main() -> None:
    """Print the mean return with its spread over episodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("--checkpoint", choices=["last", "best", "failed"], default="last", help="(default: last)")
    parser.add_argument("--episodes", type=int, default=20, help="how many (default: 20)")
    parser.add_argument("--seed", type=int, help="of the episodes (default: those of the run's own evaluations)")
    args = parser.parse_args()
    if args.episodes < 1:
        parser.error(f"--episodes={args.episodes}: allowed is at least 1")
    from minerva.evaluator import Evaluator
    from minerva.policy import load_policy
    from minerva.seeding import derive

    policy = load_policy(args.run, args.checkpoint)
    cfg = config.load(args.run)
    env = config.build(cfg.env, num_envs=min(args.episodes, cfg.trainer.eval_episodes), stagger=0, on_hang=None)
    evaluator = Evaluator(env=env, seed=derive(cfg.seed if args.seed is None else args.seed, "eval"))
    metrics = evaluator(policy.algo, args.episodes, cfg.trainer.max_eval_steps)
    print(
        f"{args.checkpoint} checkpoint at step {policy.step:,}, {args.episodes} episodes: return "
        f"{metrics['eval/return_mean']:.1f} ± {metrics['eval/return_std']:.1f} "
        f"(min {metrics['eval/return_min']:.1f}, max {metrics['eval/return_max']:.1f}), "
        f"length {metrics['eval/length_mean']:.0f}"
    )


if __name__ == "__main__":
    main()
