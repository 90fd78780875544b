"""V-MPO's steps against plain computations; its temperature is in test_duals.py."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from minerva.algos.vmpo import VMPO
from minerva.returns import discounted_returns, gae
from minerva.types import EnvSpec, Rollout
from tests.conftest import actor_critic
from tests.test_ppo import watch_gradients

ACTIONS = {"discrete": spaces.Discrete(3), "continuous": spaces.Box(-1, 1, (2,), np.float32)}
COMMON = {
    "charts/learning_rate", "loss/total", "loss/value", "loss/policy", "loss/policy_weighted_nll", "loss/alpha",
    "vmpo/temperature_raw", "vmpo/dual_loss", "vmpo/epsilon_eta", "vmpo/adv_std_over_temperature", "vmpo/selected_frac",
    "vmpo/threshold", "vmpo/ess", "vmpo/restarting_frac", "vmpo/importance_mean", "vmpo/kl_over_epsilon_eta",
    "train/entropy", "train/param_delta", "train/mean_abs_action", "adv/raw_mean", "adv/raw_std", "returns/raw_mean",
    "returns/raw_std", "value/explained_var", "value/pred_mean", "value/pred_std",
}  # fmt: skip
OF_A_HEAD = {
    "continuous": {
        "loss/policy_kl_mean_pen", "loss/policy_kl_std_pen", "kl/mean", "kl/std", "kl/mean_sel", "kl/std_sel",
        "vmpo/alpha_mu", "vmpo/alpha_sigma", "vmpo/kl_over_epsilon_mu", "vmpo/kl_over_epsilon_sigma",
    },
    "discrete": {"loss/policy_kl_all_pen", "kl/all", "kl/all_sel", "vmpo/alpha_kl", "vmpo/kl_over_epsilon_kl"},
}  # fmt: skip


def make(kind: str = "continuous", *, network: dict | None = None, **changes) -> VMPO:
    values = {
        "num_steps": 8, "m_steps": 2, "minibatch_size": 6, "target_period": 1, "gamma": 0.9, "advantage": "gae",
        "gae_lambda": 0.8, "norm_adv": True, "topk_fraction": 0.5, "temperature": "solve", "temperature_init": 1.0,
        "temperature_lr": 0.1, "alpha_init": 1.0, "alpha_lr": 0.05, "epsilon_eta": 0.2, "epsilon_mu": 0.01,
        "epsilon_sigma": 0.001, "epsilon_kl": 0.01, "norm_value": False, "optimizer": "adam",
        "adam_eps": 1e-5, "learning_rate": 1e-2, "value_learning_rate": 2e-2, "lr_schedule": "constant", "warmup": 0.1,
        "max_grad_norm": None, "value_max_grad_norm": None, "compile": False,
    }  # fmt: skip
    spec = EnvSpec((4,), "float32", ACTIONS[kind])
    return VMPO(network=actor_critic(spec, **(network or {})), **(values | changes))


def collect(vmpo: VMPO, steps: int = 8, envs: int = 2, reward_scale: float = 1.0) -> Rollout:
    obs = torch.randn(steps, envs, 4)
    with torch.no_grad():
        decision = vmpo.actor.act(obs, vmpo.actor.noise(steps, envs))
        values = vmpo.network.value(obs), vmpo.network.value(torch.randn(steps, envs, 4))
        log_prob = vmpo.network.distribution(decision.policy).log_prob(decision.sample)
    return Rollout(
        obs=obs,
        action=decision.sample,
        reward=reward_scale * torch.randn(steps, envs),
        terminated=torch.zeros(steps, envs, dtype=torch.bool),
        truncated=torch.zeros(steps, envs, dtype=torch.bool),
        log_prob=log_prob,
        value=values[0],
        next_value=values[1],
        policy=decision.policy,
    )


def e_step(vmpo: VMPO, advantage: list[float], restarting: list[float] | None = None, importance=None):
    """psi and D~ as lists, and the metrics."""
    a = torch.tensor(advantage)
    ones = torch.ones_like(a)
    psi, selected, metrics = vmpo._e_step(
        a,
        ones if restarting is None else torch.tensor(restarting),
        ones if importance is None else torch.tensor(importance),
    )
    return psi.tolist(), selected.tolist(), metrics


def torchs(kind: str, params: torch.Tensor) -> torch.distributions.Distribution:
    """torch's own distribution of the same parameters."""
    if kind == "discrete":
        return torch.distributions.Categorical(logits=params)
    mean, log_std = params.chunk(2, -1)
    return torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)


def with_deviation_of(mean: torch.Tensor, std: torch.Tensor) -> torch.Tensor:
    return torch.cat([mean.chunk(2, -1)[0], std.chunk(2, -1)[1]], -1)


@pytest.mark.parametrize("kind", list(ACTIONS))
def test_the_losses_are_those_of_the_paper(kind):
    vmpo = make(kind)
    obs, target, weight = torch.randn(6, 4), torch.randn(6), torch.tensor([0.0, 3.0, 0.0, 1.5, 0.0, 1.5])
    new = vmpo.network.policy(obs).params.detach()
    old = new + 0.3 * torch.randn_like(new)
    action = torchs(kind, old).sample()
    with torch.no_grad():
        for number, alpha in enumerate(vmpo.alpha.values()):
            alpha.fill_(2.0 + number)
    _, losses = vmpo._losses(obs, action, old, weight, target)

    # weight is 6 psi: psi = 1/2, 1/4, 1/4.
    log_prob = torchs(kind, new).log_prob(action)
    nll = -float(0.5 * log_prob[1] + 0.25 * log_prob[3] + 0.25 * log_prob[5])
    kl = torch.distributions.kl_divergence
    if kind == "discrete":
        parts = {"all": (2.0, 0.01, float(kl(torchs(kind, old), torchs(kind, new)).mean()))}
    else:
        mean = kl(torchs(kind, old), torchs(kind, with_deviation_of(new, old))).mean()
        std = kl(torchs(kind, old), torchs(kind, with_deviation_of(old, new))).mean()
        parts = {"mean": (2.0, 0.01, float(mean)), "std": (3.0, 0.001, float(std))}
    penalty = {name: alpha * value for name, (alpha, _, value) in parts.items()}
    alpha_loss = sum(alpha * (epsilon - value) for alpha, epsilon, value in parts.values())
    value_loss = 0.5 * float((vmpo.network.value(obs) - target).square().mean())
    expected = {
        "loss/policy_weighted_nll": nll,
        **{f"loss/policy_kl_{name}_pen": value for name, value in penalty.items()},
        "loss/policy": nll + sum(penalty.values()),
        "loss/alpha": alpha_loss,
        "loss/value": value_loss,
        "loss/total": nll + sum(penalty.values()) + alpha_loss + value_loss,
    }
    assert {name: loss.item() for name, loss in losses.items()} == pytest.approx(expected, abs=1e-5)

    losses["loss/total"].backward()
    gradients = [epsilon - value for _, epsilon, value in parts.values()]
    assert [alpha.grad.item() for alpha in vmpo.alpha.values()] == pytest.approx(gradients, abs=1e-5)
    assert vmpo.eta.grad is None


def test_the_covariance_is_not_bounded_by_the_mean_nor_the_mean_by_the_covariance():
    vmpo = make()
    obs = torch.randn(5, 4)
    new = vmpo.network.policy(obs).params
    moved = torch.cat([torch.full((5, 2), 0.5), torch.zeros(5, 2)], -1)
    for change, still in ((moved, "std"), (moved.roll(2, -1), "mean")):
        old = (new + change).detach()
        _, losses = vmpo._losses(obs, torch.zeros(5, 2), old, torch.zeros(5), torch.zeros(5))
        assert losses[f"loss/policy_kl_{still}_pen"].item() == pytest.approx(0, abs=1e-6)
        head = vmpo.network.policy_head
        log_std, mean_bias = torch.autograd.grad(losses["loss/policy"], (head.log_std.vector, head.mean.bias))
        assert (mean_bias if still == "mean" else log_std).abs().max() < 1e-6
        assert (log_std if still == "mean" else mean_bias).abs().min() > 0.01


STILL = {"optimizer": "sgd", "learning_rate": 1e-30, "value_learning_rate": 1e-30, "m_steps": 1}  # moves nothing


@pytest.mark.parametrize("minibatch_size", [None, 4])
def test_the_update_brings_psi_and_the_samples_together(minibatch_size):
    vmpo = make(**STILL, minibatch_size=minibatch_size)
    batch = collect(vmpo)
    advantage, _ = gae(
        batch.reward, batch.value, batch.next_value, batch.terminated, batch.truncated, gamma=0.9, gae_lambda=0.8
    )
    psi, _, _ = e_step(vmpo, advantage.flatten().tolist())
    log_prob = torchs("continuous", batch.policy.flatten(0, 1)).log_prob(batch.action.flatten(0, 1))
    expected = -sum(p * float(log_p) for p, log_p in zip(psi, log_prob, strict=True))
    metrics = vmpo.update(batch, 0.0)
    assert metrics["loss/policy_weighted_nll"] == pytest.approx(expected, abs=1e-5)
    assert metrics["kl/mean"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        ("gae", {"gamma": 0.9, "gae_lambda": 0.8}),
        ("dae", {"gamma": 0.9, "gae_lambda": 0.0}),
        ("returns", {"gamma": 0.9}),
    ],
)
def test_the_value_is_fitted_to_the_targets_of_the_estimator(estimator, options):
    vmpo = make(**STILL, minibatch_size=None, advantage=estimator)
    batch = collect(vmpo)
    ends = batch.terminated, batch.truncated
    if estimator == "returns":
        target = discounted_returns(batch.reward, batch.next_value, *ends, **options)
    else:
        _, target = gae(batch.reward, batch.value, batch.next_value, *ends, **options)
    loss = 0.5 * (batch.value - target).square().mean().item()
    assert vmpo.update(batch, 0.0)["loss/value"] == pytest.approx(loss, rel=1e-5)


def test_normalised_value_targets_have_unit_deviation_and_leave_the_value_as_it_was():
    vmpo = make(**STILL, minibatch_size=None, norm_value=True, network={"popart_rate": 1.0})
    batch = collect(vmpo, reward_scale=100.0)
    metrics = vmpo.update(batch, 0.0)
    _, target = gae(
        batch.reward, batch.value, batch.next_value, batch.terminated, batch.truncated, gamma=0.9, gae_lambda=0.8
    )
    expected = 0.5 * ((batch.value - target) / target.std(correction=0)).square().mean().item()
    assert metrics["loss/value"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("still", ["learning_rate", "value_learning_rate"])
def test_policy_and_value_have_learning_rates_of_their_own(still, shared):
    vmpo = make(optimizer="sgd", network={"shared_encoder": shared}, **{still: 1e-30})
    before = copy.deepcopy(vmpo.network.state_dict())
    vmpo.update(collect(vmpo), 0.0)
    moved = {name.split(".")[0] for name, p in vmpo.network.named_parameters() if (p - before[name]).abs().max() > 1e-9}
    policy, value = {"policy_body", "policy_head"}, {"value_head"} if shared else {"value_body", "value_head"}
    assert moved == (value if still == "learning_rate" else policy)


def test_metrics_are_what_they_say():
    vmpo = make(network={"head": "squashed"}, learning_rate=0.05)
    before = torch.cat([p.detach().flatten() for p in vmpo.network.parameters()])
    batch = collect(vmpo)
    advantage, target = gae(
        batch.reward, batch.value, batch.next_value, batch.terminated, batch.truncated, gamma=0.9, gae_lambda=0.8
    )
    _, selected, _ = e_step(copy.deepcopy(vmpo), advantage.flatten().tolist())
    metrics = vmpo.update(batch, 0.0)
    after = torch.cat([p.detach().flatten() for p in vmpo.network.parameters()])
    vmpo.network.normalizer.scale.fill_(1)  # as it was for this rollout
    vmpo.network.normalizer.shift.fill_(0)
    new = vmpo.network.policy(batch.obs)
    mean = torchs("continuous", with_deviation_of(new.params, batch.policy))
    kl = torch.distributions.kl_divergence(torchs("continuous", batch.policy), mean).flatten()
    g, v = target.numpy().ravel(), batch.value.numpy().ravel()
    expected = {
        "train/entropy": new.entropy().mean().item(),
        "train/param_delta": (after - before).norm().item(),
        "train/mean_abs_action": batch.action.tanh().abs().mean().item(),
        "adv/raw_mean": advantage.mean().item(),
        "adv/raw_std": advantage.std().item(),
        "returns/raw_mean": g.mean(),
        "returns/raw_std": g.std(ddof=1),
        "value/explained_var": 1 - np.var(g - v) / np.var(g),
        "value/pred_mean": v.mean(),
        "value/pred_std": v.std(ddof=1),
        "kl/mean": kl.mean().item(),
        "kl/mean_sel": kl[torch.tensor(selected)].mean().item(),
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("temperature", ["solve", "gradient"])
def test_an_advantage_that_is_not_a_number_shows_in_the_loss(temperature):
    vmpo = make(temperature=temperature)
    batch = collect(vmpo)
    batch.value[3, 1] = math.nan
    assert math.isnan(vmpo.update(batch, 0.0)["loss/total"])


def test_the_e_step_is_that_of_the_paper():
    vmpo = make(norm_adv=False, temperature="gradient", temperature_lr=1e-30, temperature_init=0.5)
    psi, selected, metrics = e_step(vmpo, [1.0, -2.0, 3.0, 2.5, 0.0, 1.5])
    assert selected == [False, False, True, True, False, True]
    weights = np.exp(np.array([3.0, 2.5, 1.5]) / 0.5)
    expected = weights / weights.sum()
    assert [psi[2], psi[3], psi[5]] == pytest.approx(expected.tolist())
    assert psi[0] == psi[1] == psi[4] == 0
    kl = float((expected * np.log(3 * expected)).sum())
    assert {name: value.item() for name, value in metrics.items()} == pytest.approx(
        {
            "vmpo/temperature_raw": 0.5,
            "vmpo/dual_loss": 0.5 * 0.2 + 0.5 * math.log(weights.mean()),
            "vmpo/kl_over_epsilon_eta": kl / 0.2,
            "vmpo/adv_std_over_temperature": float(np.std([1.0, -2.0, 3.0, 2.5, 0.0, 1.5])) / 0.5,
            "vmpo/selected_frac": 0.5,
            "vmpo/threshold": 1.5,
            "vmpo/ess": 1 / float((expected**2).sum()),
        }
    )


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e8])
@pytest.mark.parametrize("norm_adv", [False, True])
def test_the_solved_temperature_binds_at_any_scale(scale, norm_adv):
    vmpo = make(norm_adv=norm_adv)
    advantage = scale * np.random.default_rng(0).normal(size=100)
    psi, _, metrics = e_step(vmpo, advantage.tolist())
    assert metrics["vmpo/kl_over_epsilon_eta"].item() == pytest.approx(1, rel=1e-5)
    assert sum(psi) == pytest.approx(1, abs=1e-5)


def test_the_temperature_by_gradient_comes_to_the_solved_one():
    advantage = np.random.default_rng(0).normal(size=100).tolist()
    solved, gradient = make(), make(temperature="gradient", temperature_lr=0.05, temperature_init=5.0, m_steps=400)
    e_step(solved, advantage)
    e_step(gradient, advantage)
    assert gradient.eta.item() == pytest.approx(solved.eta.item(), rel=0.01)


@pytest.mark.parametrize(
    ("advantage", "fraction", "expected"),
    [
        ([1.0, 1.0, 1.0, 1.0], 0.5, [1 / 4] * 4),  # all equal: nothing to choose by
        ([0.0, 1.0, 1.0, 1.0], 0.5, [0, 1 / 3, 1 / 3, 1 / 3]),  # a tie at the threshold
        ([5.0], 0.5, [1.0]),
        ([5.0, 4.0], 0.5, [1.0, 0]),
        ([5.0, 4.0, 6.0], 0.1, [0, 0, 1.0]),
    ],
)
@pytest.mark.parametrize("norm_adv", [False, True])
def test_ties_and_tiny_batches(advantage, fraction, expected, norm_adv):
    psi, selected, _ = e_step(make(topk_fraction=fraction, norm_adv=norm_adv), advantage)
    assert psi == pytest.approx(expected)
    assert selected == [value > 0 for value in expected]


def test_a_zero_restarting_weight_takes_a_sample_out():
    vmpo = make(norm_adv=False, topk_fraction=0.5)
    psi, selected, _ = e_step(vmpo, [9.0, 1.0, 2.0, 3.0, 4.0], restarting=[0.0, 1.0, 1.0, 1.0, 1.0])
    assert selected == [False, False, False, True, True], "half of the four that are left"
    assert psi[0] == 0
    assert sum(psi) == pytest.approx(1)


@pytest.mark.parametrize("temperature", ["solve", "gradient"])
def test_a_sample_of_no_weight_changes_nothing(temperature):
    results = []
    for extra, weight in (([], []), ([1e4], [0.0])):
        vmpo = make(temperature=temperature, temperature_lr=1e-30)
        advantage = np.random.default_rng(0).normal(size=20).tolist()
        results.append(e_step(vmpo, advantage + extra, restarting=[1.0] * 20 + weight))
    assert results[1][0] == pytest.approx(results[0][0] + [0.0])
    del results[0][2]["vmpo/selected_frac"], results[1][2]["vmpo/selected_frac"]
    assert {k: float(v) for k, v in results[1][2].items()} == pytest.approx(
        {k: float(v) for k, v in results[0][2].items()}
    )


def test_importance_weights_multiply_the_samples():
    # A sample of weight 2 counts as two samples of weight 1.
    vmpo = make(norm_adv=False, topk_fraction=1.0)
    once, _, _ = e_step(vmpo, [1.0, 2.0, 3.0], importance=[1.0, 2.0, 1.0])
    twice, _, _ = e_step(vmpo, [1.0, 2.0, 2.0, 3.0])
    assert once == pytest.approx([twice[0], twice[1] + twice[2], twice[3]])


def test_weights_reach_the_update_and_its_metrics():
    vmpo = make()
    batch = collect(vmpo)
    restarting, importance = torch.ones(8, 2), torch.full((8, 2), 0.5)
    restarting[:2] = 0
    metrics = vmpo.update(batch, 0.0, restarting_weights=restarting, importance_weights=importance)
    assert metrics["vmpo/restarting_frac"] == pytest.approx(12 / 16)
    assert metrics["vmpo/importance_mean"] == 0.5
    assert metrics["vmpo/selected_frac"] == pytest.approx(6 / 16)
    with pytest.raises(ValueError, match="at least one sample must be above 0"):
        vmpo.update(batch, 0.0, restarting_weights=torch.zeros(8, 2))


@pytest.mark.parametrize("kind", list(ACTIONS))
def test_alpha_rises_while_the_kl_is_above_epsilon_and_falls_below(kind):
    for epsilon, rises in ((1e-12, True), (1e3, False)):
        vmpo = make(kind, epsilon_mu=epsilon, epsilon_sigma=epsilon, epsilon_kl=epsilon, m_steps=5)
        vmpo.update(collect(vmpo), 0.0)
        assert all((alpha.item() > 1) is rises for alpha in vmpo.alpha.values()), vmpo.alpha


@pytest.mark.parametrize("kind", list(ACTIONS))
def test_multipliers_stay_above_their_minimum(kind):
    vmpo = make(kind, epsilon_mu=1e3, epsilon_sigma=1e3, epsilon_kl=1e3, alpha_lr=10.0, epsilon_eta=1e3)
    metrics = vmpo.update(collect(vmpo), 0.0)
    assert all(alpha.item() == pytest.approx(1e-8) for alpha in vmpo.alpha.values())
    assert metrics["vmpo/temperature_raw"] == pytest.approx(1e-8)
    gradient = make(kind, temperature="gradient", temperature_lr=10.0, epsilon_eta=1e3)
    assert gradient.update(collect(gradient), 0.0)["vmpo/temperature_raw"] == pytest.approx(1e-8)


def test_a_large_alpha_holds_the_policy():
    moved = {}
    for alpha in (1e-8, 1e3):
        vmpo = make(alpha_init=alpha, alpha_lr=1e-8, m_steps=10)
        moved[alpha] = vmpo.update(collect(vmpo), 0.0)["kl/mean"]
    assert moved[1e3] < 0.1 * moved[1e-8]


def test_the_kl_is_that_of_the_whole_batch_from_the_policy_that_acted():
    vmpo = make()
    batch = collect(vmpo)
    metrics = vmpo.update(batch, 0.0)
    vmpo.network.normalizer.scale.fill_(1)  # as it was for this rollout
    vmpo.network.normalizer.shift.fill_(0)
    new = vmpo.network.policy(batch.obs).params.detach()
    kl = torch.distributions.kl_divergence(
        torchs("continuous", batch.policy), torchs("continuous", with_deviation_of(new, batch.policy))
    )
    assert metrics["kl/mean"] == pytest.approx(kl.mean().item(), rel=1e-3)
    assert metrics["vmpo/kl_over_epsilon_mu"] == pytest.approx(metrics["kl/mean"] / 0.01)
    assert metrics["kl/mean_sel"] != metrics["kl/mean"]


def test_the_target_acts_and_is_copied_every_period():
    vmpo = make(target_period=3)
    obs = torch.randn(5, 4)
    first = vmpo.actor.act(obs).policy[:, 2:]  # the deviations, which no normaliser changes
    for number in range(1, 7):
        vmpo.update(collect(vmpo), 0.0)
        acted, online = vmpo.actor.act(obs, vmpo.actor.noise(len(obs))).policy, vmpo.network.policy(obs).params
        assert torch.equal(acted, online) is (number % 3 == 0)
        assert torch.equal(acted[:, 2:], first) is (number < 3)
    assert vmpo.target.normalizer is vmpo.network.normalizer


def test_the_value_is_the_networks_and_the_likeliest_action_the_targets():
    vmpo = make(target_period=3)
    vmpo.update(collect(vmpo), 0.0)
    obs = torch.randn(5, 4)
    assert torch.equal(vmpo.network.value(obs), vmpo.network.value(obs))
    assert not torch.equal(vmpo.network.value(obs), vmpo.target.value(obs))
    assert torch.equal(vmpo.actor.act(obs).action, vmpo.target.policy(obs).mean)
    assert not torch.equal(
        vmpo.actor.act(obs, vmpo.actor.noise(len(obs))).action, vmpo.actor.act(obs, vmpo.actor.noise(len(obs))).action
    )


def test_the_normaliser_is_frozen_while_learning_and_updated_after():
    vmpo = make()
    batch = collect(vmpo)
    seen = []
    vmpo.network.normalizer.register_forward_hook(lambda module, *_: seen.append(module.count.item()))
    vmpo.update(batch, 0.0)
    assert set(seen) == {0}
    assert vmpo.network.normalizer.count.item() == 16


@pytest.mark.parametrize("kind", list(ACTIONS))
def test_metrics_are_all_there_and_finite(kind):
    vmpo = make(kind)
    batch = collect(vmpo)
    metrics = vmpo.update(batch, 0.0)
    assert set(metrics) == COMMON | OF_A_HEAD[kind]
    assert all(math.isfinite(value) for value in metrics.values())


def test_raw_metrics_are_from_before_normalisation():
    metrics = [make(norm_adv=norm).update(collect(make(), reward_scale=100.0), 0.0) for norm in (True, False)]
    for name in ("adv/raw_mean", "adv/raw_std", "returns/raw_mean", "returns/raw_std"):
        assert metrics[0][name] == metrics[1][name]
    assert metrics[0]["adv/raw_std"] > 50


@pytest.mark.parametrize("scale", [1e-8, 1e8])
def test_rewards_of_any_scale_give_finite_parameters(scale):
    vmpo = make(norm_adv=False)
    vmpo.update(collect(vmpo, reward_scale=scale), 0.0)
    assert all(parameter.isfinite().all() for parameter in vmpo.network.parameters())


def test_linear_schedule_follows_the_progress():
    vmpo = make(lr_schedule="linear")
    metrics = vmpo.update(collect(vmpo), 0.25)
    assert metrics["charts/learning_rate"] == pytest.approx(0.75e-2)
    assert vmpo.learner.rates[1] == pytest.approx(1.5e-2), "the value's"


def test_the_gradients_of_policy_and_value_are_bounded_apart(monkeypatch):
    vmpo = make(max_grad_norm=1e-3, value_max_grad_norm=1e-4)
    norms = watch_gradients(monkeypatch)
    vmpo.update(collect(vmpo), 0.0)
    policy, value = norms[0::3], norms[1::3]  # and the multipliers'
    np.testing.assert_allclose(policy, [1e-3] * len(policy), rtol=1e-2)
    np.testing.assert_allclose(value, [1e-4] * len(value), rtol=1e-2)


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_optimizer_by_name(name):
    policy, value, alpha = make(optimizer=name).learner.groups
    assert policy.optimizer == value.optimizer == name
    assert policy.eps == 1e-5
    assert alpha.optimizer == "adam"


OPTIONS = [
    {"network": {"shared_encoder": True}},
    {"network": {"head": "squashed", "state_dependent_std": True}},
    {"minibatch_size": None, "m_steps": 3},
    {"advantage": "dae", "norm_value": True},
    {"advantage": "returns", "temperature": "gradient"},
]


@pytest.mark.parametrize("kind", list(ACTIONS))
@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=str)
def test_state_goes_on_exactly(kind, options):
    one, other = make(kind, target_period=2, **options), make(kind, target_period=2, **options)
    for _ in range(3):  # one beyond a copy, so that the target is not the network
        one.update(collect(one), 0.0)
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    batch = collect(one)
    results = []
    for vmpo in (one, other):
        torch.manual_seed(1)
        results.append((vmpo.update(batch, 0.0), vmpo.actor.act(batch.obs).action))
    assert results[0][0] == results[1][0]
    assert torch.equal(results[0][1], results[1][1])
    for name, tensor in one.network.state_dict().items():
        assert torch.equal(tensor, other.network.state_dict()[name]), name
