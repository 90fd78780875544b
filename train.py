"""Train one agent: compose -> build -> fit. See ``python train.py --help``."""

import hydra
from omegaconf import DictConfig

from minerva import cli, config
from minerva.run import Run

config.register()


@cli.entry
@hydra.main(config_path="conf", config_name="train", version_base="1.3")
def main(cfg: DictConfig) -> float:
    """Train as ``cfg`` says; returns the final ``eval/return_mean``."""
    with cli.one_line_errors(), Run(config.run_dir()) as run:
        config.check(cfg)
        config.settle(cfg, run.run_dir)
        import torch  # here, and not for --help, --cfg, tab completion and mistakes

        from minerva.collector import Collector
        from minerva.evaluator import Evaluator
        from minerva.seeding import derive, seed_everything

        device = torch.device(cfg.device)
        seed_everything(cfg.seed, device)
        torch.set_num_threads(cfg.threads)
        env = config.build(cfg.env, on_hang=run.fail)
        eval_env = config.build(cfg.env, num_envs=cfg.trainer.eval_episodes, stagger=0, on_hang=run.fail)
        network = config.network(cfg.network, env.spec, cfg.amp).to(device)
        algo = config.build(cfg.algo, network=network, compile=cfg.compile)
        reward = config.build(cfg.reward, num_envs=env.num_envs, gamma=cfg.algo.gamma)
        seed = derive(cfg.seed, "train")
        collector = Collector(env=env, algo=algo, reward_transform=reward, seed=seed, device=device)
        evaluator = Evaluator(env=eval_env, seed=derive(cfg.seed, "eval"), device=device)
        parts = {
            "algo": algo,
            "collector": collector,
            "evaluator": evaluator,
            "record": config.recorder(cfg, seed=derive(cfg.seed, "video"), device=device, on_hang=run.fail)
            if cfg.trainer.video
            else None,
            "loggers": config.loggers(cfg, run.run_dir),
        }
        trainer = config.build(cfg.trainer, **parts, run_dir=run.run_dir, identity=config.identity(cfg))
        run.begin(config.summary(cfg))
        score = run.finish(trainer.fit())
    from minerva.report.curve import learning_curve

    learning_curve(run.run_dir, f"{type(algo).__name__} on {cfg.env.id}, seed {cfg.seed}")
    return score


if __name__ == "__main__":
    main()
