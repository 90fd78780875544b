"""PPO's loss against a plain computation, and its schedules."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces

from minerva import learner
from minerva.algos.ppo import PPO
from minerva.types import EnvSpec, Rollout
from tests.conftest import actor_critic

ACTIONS = {"discrete": spaces.Discrete(3), "continuous": spaces.Box(-1, 1, (2,), np.float32)}


def make(kind: str = "continuous", **changes) -> PPO:
    network = actor_critic(EnvSpec((4,), "float32", ACTIONS[kind]), value_layers=[8, 8])
    values = {
        "num_steps": 8, "update_epochs": 2, "minibatch_size": 6, "gamma": 0.9, "advantage": "gae", "gae_lambda": 0.8,
        "norm_adv": True, "clip_coef": 0.2, "clip_vloss": None, "ent_coef": 0.01, "vf_coef": 0.5, "norm_value": False,
        "max_grad_norm": 0.5, "learning_rate": 1e-2, "value_learning_rate": 2e-2, "lr_schedule": "constant", "clip_schedule": "constant", "ent_schedule": "constant", "warmup": 0.1, "adaptive_kl": 0.01, "adaptive_kl_final": 0.01,
        "adaptive_factor": 1.2, "adaptive_lr_min": 1e-5, "adaptive_lr_max": 2e-3, "target_kl": None,
        "optimizer": "adam", "adam_eps": 1e-5, "weight_decay": 0.0, "compile": False,
    }  # fmt: skip
    return PPO(network=network, **(values | changes))


def rollout(ppo: PPO, steps: int = 8, envs: int = 2) -> Rollout:
    obs = torch.randn(steps, envs, 4)
    with torch.no_grad():
        decision = ppo.actor.act(obs, ppo.actor.noise(steps, envs))
        values = ppo.network.value(obs), ppo.network.value(torch.randn(steps, envs, 4))
        log_prob = ppo.network.distribution(decision.policy).log_prob(decision.sample)
    return Rollout(
        obs=obs,
        action=decision.sample,
        reward=torch.randn(steps, envs),
        terminated=torch.zeros(steps, envs, dtype=torch.bool),
        truncated=torch.zeros(steps, envs, dtype=torch.bool),
        log_prob=log_prob,
        value=values[0],
        next_value=values[1],
        policy=decision.policy,
    )


@pytest.mark.parametrize("kind", list(ACTIONS))
@pytest.mark.parametrize("clip_vloss", [None, 0.05])
def test_loss_is_that_of_the_paper(kind, clip_vloss):
    ppo = make(kind, clip_vloss=clip_vloss)
    obs = torch.randn(6, 4)
    policy = ppo.network.policy(obs)
    action = policy.sample()
    # An old policy far enough away for the ratio to be clipped on both sides.
    old_log_prob = policy.log_prob(action).detach() + torch.tensor([-0.5, -0.1, 0.0, 0.1, 0.5, 0.9])
    old_value, advantage, target = torch.randn(6), torch.randn(6), torch.randn(6)
    coefficients = {name: torch.tensor(value) for name, value in ppo.learner.coefficients.items()}
    loss, terms = ppo._loss(obs, action, old_log_prob, old_value, advantage, target, **coefficients)

    with torch.no_grad():
        if kind == "discrete":
            reference = torch.distributions.Categorical(logits=policy.params)
            log_prob, entropy = reference.log_prob(action), reference.entropy()
        else:
            reference = torch.distributions.Normal(policy.mean, policy.std)
            log_prob, entropy = reference.log_prob(action).sum(-1), reference.entropy().sum(-1)
        value = ppo.network.value(obs)
    a = (advantage - advantage.mean()) / advantage.std(correction=0)
    policy_loss = value_loss = 0.0
    for i in range(6):
        r = float((log_prob[i] - old_log_prob[i]).exp())
        policy_loss -= min(r * float(a[i]), float(np.clip(r, 0.8, 1.2)) * float(a[i])) / 6
        error = (value[i] - target[i]) ** 2
        if clip_vloss:
            near = old_value[i] + np.clip(float(value[i] - old_value[i]), -clip_vloss, clip_vloss)
            error = max(error, (near - target[i]) ** 2)
        value_loss += 0.5 * float(error) / 6
    expected = policy_loss + 0.5 * value_loss - 0.01 * float(entropy.mean())
    assert loss.item() == pytest.approx(expected, abs=1e-5)
    assert float(terms["losses/policy_loss"]) == pytest.approx(policy_loss, abs=1e-5)
    assert float(terms["losses/value_loss"]) == pytest.approx(value_loss, abs=1e-5)
    assert float(terms["losses/clipfrac"]) == pytest.approx(3 / 6)


def test_an_unchanged_policy_has_ratio_one():
    ppo = make(update_epochs=1, minibatch_size=16, norm_adv=False)
    batch = rollout(ppo)
    metrics = ppo.update(batch, 0.0)
    assert metrics["losses/approx_kl"] == pytest.approx(0, abs=1e-6)
    assert metrics["losses/clipfrac"] == 0


def test_the_normaliser_is_frozen_while_learning_and_updated_after():
    ppo = make()
    before = ppo.network.normalizer.count.item()
    batch = rollout(ppo)
    seen = []
    ppo.network.normalizer.register_forward_hook(lambda module, *_: seen.append(module.count.item()))
    ppo.update(batch, 0.0)
    assert set(seen) == {before}
    assert ppo.network.normalizer.count.item() == before + 16


def test_linear_schedule_follows_the_progress():
    ppo = make(lr_schedule="linear")
    assert ppo.update(rollout(ppo), 0.25)["charts/learning_rate"] == pytest.approx(0.75e-2)
    assert ppo.learner.rates[1] == pytest.approx(1.5e-2), "the value's"


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_schedules_of_the_clip_range_and_the_entropy_coefficient_have_their_effect(compile):
    """At the end of a linear schedule the entropy counts for nothing, half-way as half of its coefficient does."""

    def outcome(progress: float, **changes) -> list[torch.Tensor]:
        ppo = make(compile=compile, update_epochs=1, **changes)
        batch = rollout(ppo)
        torch.manual_seed(1)
        metrics = ppo.update(batch, progress)
        found.append((metrics["charts/clip_coef"], metrics["charts/ent_coef"]))
        return [parameter.detach().clone() for parameter in ppo.network.parameters()]

    found: list[tuple[float, float]] = []
    scheduled = {"clip_schedule": "linear", "ent_schedule": "linear", "clip_coef": 0.4, "ent_coef": 1.0}
    half = outcome(0.5, **scheduled)
    for ours, theirs in zip(half, outcome(0.0, clip_coef=0.2, ent_coef=0.5), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert found == [(0.2, 0.5)] * 2
    assert any(not torch.allclose(a, b, atol=1e-4) for a, b in zip(half, outcome(0.0, **scheduled), strict=True))


def test_adaptive_schedule_goes_up_below_the_target_and_down_above_within_its_bounds():
    for target, factor in ((10.0, 1.2**2), (1e-9, 1.2**-2)):
        ppo = make(lr_schedule="adaptive", adaptive_kl=target, adaptive_kl_final=target, learning_rate=1e-3)
        assert ppo.update(rollout(ppo), 0.0)["charts/learning_rate"] == pytest.approx(1e-3 * factor)
    ppo = make(lr_schedule="adaptive", adaptive_kl=10.0, learning_rate=1e-3, update_epochs=30)
    assert ppo.update(rollout(ppo), 0.0)["charts/learning_rate"] == pytest.approx(2e-3)


@pytest.mark.parametrize(("progress", "factor"), [(0.0, 1.2**2), (1.0, 1.2**-2)])
def test_the_kl_of_the_adaptive_schedule_falls_with_the_progress(progress, factor):
    ppo = make(lr_schedule="adaptive", adaptive_kl=10.0, adaptive_kl_final=1e-9, learning_rate=1e-3)
    assert ppo.update(rollout(ppo), progress)["charts/learning_rate"] == pytest.approx(1e-3 * factor)


def test_target_kl_stops_the_epochs():
    steps = {}
    for target in (None, 1e-6):
        ppo = make(target_kl=target, update_epochs=5)
        ppo.update(rollout(ppo), 0.0)
        steps[target] = ppo.learner.steps
    assert steps == {None: 5 * 3, 1e-6: 3}, "16 samples in three minibatches an epoch"


def watch_gradients(monkeypatch) -> list[float]:
    """The norms of the gradients that are stepped along, of one group after the other."""
    norms, optimize = [], learner.optimize
    monkeypatch.setattr(
        learner, "optimize", lambda *args: (norms.append(float(args[4].square().sum()) ** 0.5), optimize(*args))
    )
    return norms


def test_the_gradient_is_bounded_as_a_whole(monkeypatch):
    ppo = make(max_grad_norm=1e-3)
    norms = watch_gradients(monkeypatch)
    ppo.update(rollout(ppo), 0.0)
    wholes = np.hypot(norms[0::2], norms[1::2])  # of policy and value
    np.testing.assert_allclose(wholes, [1e-3] * len(wholes), rtol=1e-2)


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_optimizer_by_name(name):
    for group in make(optimizer=name, weight_decay=0.1).learner.groups:
        assert (group.optimizer, group.weight_decay, group.eps) == (name, 0.1, 1e-5)


def test_state_goes_on_exactly():
    one, other = make(lr_schedule="adaptive"), make(lr_schedule="adaptive", learning_rate=5.0)
    one.update(rollout(one), 0.0)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    batch = rollout(one)
    for ppo in (one, other):
        torch.manual_seed(1)
        ppo.update(batch, 0.0)
    for name, tensor in one.network.state_dict().items():
        assert torch.equal(tensor, other.network.state_dict()[name]), name
