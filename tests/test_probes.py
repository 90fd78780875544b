"""Algorithms learn what they must on environments whose answer is known."""

from __future__ import annotations

from pathlib import Path

import hydra
import numpy as np
import pytest
import torch
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from minerva import auto, config
from minerva.collector import Collector
from minerva.seeding import seed_everything

CONF = Path(__file__).parent.parent / "conf"
GAMMA = 0.5


def learn(algo: str, probe: str, *overrides: str, with_env: bool = False):
    """The algorithm after the steps that its configuration gives it; and the environments, if wanted."""
    config.register()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        cfg: DictConfig = hydra.compose("train", [f"algo={algo}", f"env=probe/{probe}", *overrides])
    GlobalHydra.instance().clear()
    assert cfg.algo.gamma == GAMMA
    seed_everything(cfg.seed, torch.device("cpu"))
    auto.settle(cfg)
    env = config.build(cfg.env, on_hang=None)
    agent = config.build(cfg.algo, network=config.network(cfg.network, env.spec, cfg.amp), compile=False)
    reward = config.build(cfg.reward, num_envs=env.num_envs, gamma=cfg.algo.gamma)
    collector = Collector(env=env, algo=agent, reward_transform=reward, seed=1, device=torch.device("cpu"))
    steps = agent.horizon * env.num_envs
    for step in range(0, cfg.trainer.total_steps - steps + 1, steps):
        agent.update(collector.collect(step), step / cfg.trainer.total_steps)
    return (agent, env) if with_env else agent


def value(agent, *observations: float) -> np.ndarray:
    return agent.network.value(torch.tensor(observations)[:, None]).detach().numpy()


def action(agent, *observations: float) -> np.ndarray:
    return agent.actor.act(torch.tensor(observations)[:, None]).action.detach().numpy()


ALGORITHMS = pytest.mark.parametrize("algo", ["ppo", "vmpo"])
RETURNS = ("algo.advantage=returns", "algo.norm_value=false")


@ALGORITHMS
def test_value_of_a_constant_reward(algo):
    np.testing.assert_allclose(value(learn(algo, "constant"), 0.0), [1.0], atol=0.05)


@ALGORITHMS
def test_value_that_depends_on_the_observation(algo):
    np.testing.assert_allclose(value(learn(algo, "predictable"), -1.0, 1.0), [-1.0, 1.0], atol=0.1)


@ALGORITHMS
@pytest.mark.parametrize("overrides", [(), pytest.param(RETURNS, marks=pytest.mark.slow)], ids=str)
def test_value_is_discounted(algo, overrides):
    np.testing.assert_allclose(value(learn(algo, "discounting", *overrides), 0.0, 1.0), [GAMMA, 1.0], atol=0.05)


@ALGORITHMS
@pytest.mark.parametrize("overrides", [(), pytest.param(RETURNS, marks=pytest.mark.slow)], ids=str)
def test_value_goes_on_beyond_a_time_limit(algo, overrides):
    # Without the bootstrap the last of five steps is worth 1, and the mean of them is 1.61.
    np.testing.assert_allclose(value(learn(algo, "time_limit", *overrides), 0.0), [1 / (1 - GAMMA)], atol=0.1)


@ALGORITHMS
def test_the_better_action(algo):
    agent = learn(algo, "action")
    assert action(agent, 0.0) == [1]
    np.testing.assert_allclose(value(agent, 0.0), [1.0], atol=0.1)


@pytest.mark.parametrize(
    ("algo", "overrides"),
    [
        ("ppo", ()),
        ("ppo", ("network.head=squashed",)),
        ("vmpo", ()),
        ("vmpo", ("network.head=squashed", "network.state_dependent_std=true")),
    ],
    ids=str,
)
def test_a_continuous_action_of_each_observation(algo, overrides):
    agent = learn(algo, "continuous_action", *overrides)
    np.testing.assert_allclose(action(agent, -1.0, 1.0)[:, 0], [-0.5, 0.5], atol=0.1)


# One run each for every option: the policy must depend on the observation under all of them.
@pytest.mark.parametrize(
    ("algo", "overrides"),
    [
        ("ppo", ()),
        ("ppo", ("algo.optimizer=adamw", "algo.clip_vloss=0.2")),
        ("ppo", ("algo.optimizer=sgd", "algo.learning_rate=0.1")),
        ("ppo", ("algo.lr_schedule=adaptive", "algo.advantage=returns", "reward.scale=true", "reward.clip=10")),
        ("ppo", ("algo.lr_schedule=linear", "algo.target_kl=0.02", "algo.norm_value=false", "algo.norm_adv=false")),
        ("ppo", ("network.shared_encoder=true",)),
        ("vmpo", ()),
        ("vmpo", ("algo.temperature=gradient", "algo.temperature_lr=0.1", "algo.advantage=dae")),
        ("vmpo", ("algo.optimizer=sgd", "algo.learning_rate=0.1", "algo.max_grad_norm=null")),
        ("vmpo", ("algo.target_period=5", "network.shared_encoder=true", "algo.minibatch_size=null")),
        ("vmpo", ("algo.lr_schedule=linear", "algo.norm_value=false", "algo.norm_adv=false")),
    ],
    ids=str,
)
def test_the_better_action_of_each_observation(algo, overrides):
    assert action(learn(algo, "action_and_observation", *overrides), -1.0, 1.0).tolist() == [0, 1]
