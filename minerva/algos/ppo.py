"""Proximal policy optimisation (Schulman et al. 2017, arXiv 1707.06347)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from minerva.learner import Group, Learner
from minerva.networks.actor_critic import ActorCritic
from minerva.returns import advantages, explained_variance
from minerva.schedules import factor
from minerva.types import Rollout, State


class PPO:
    """Clipped-surrogate PPO for discrete and continuous actions.

    Args:
        network: policy and value function.
        num_steps: T, steps of each environment in a rollout.
        update_epochs: passes over a rollout.
        minibatch_size: samples in a minibatch, at most; a pass is cut into equal ones, drawn without replacement.
        gamma: discount in [0, 1].
        advantage: ``"gae"``, or ``"returns"`` for the discounted return minus the value.
        gae_lambda: lambda of GAE in [0, 1].
        norm_adv: normalise the advantages of each minibatch.
        clip_coef: epsilon of the clipped surrogate, > 0.
        clip_vloss: the value may move this far from the old one, in the units of the value loss; None for freely.
        ent_coef: weight of the entropy bonus.
        vf_coef: weight of the value loss.
        norm_value: normalise the value targets (PopArt, arXiv 1602.07714).
        max_grad_norm: bound of the norm of the whole gradient; None for none.
        learning_rate: the first learning rate of the policy, > 0.
        value_learning_rate: the first learning rate of the value function, > 0.
        lr_schedule: of both learning rates, see :func:`minerva.schedules.factor`; or ``"adaptive"``, the policy's, to the KL
            of ``adaptive_kl``.
        clip_schedule, ent_schedule: of ``clip_coef`` and ``ent_coef``, see there.
        warmup: part of the run, in [0, 1), that a schedule with a warm-up rises in.
        adaptive_kl: KL of old and new policy, in nats, that the adaptive schedule aims an epoch at, in the beginning.
        adaptive_kl_final: the same at the end; linear in between.
        adaptive_factor: what the learning rate is multiplied with or divided by after an epoch, > 1.
        adaptive_lr_min, adaptive_lr_max: its bounds.
        target_kl: stop the epochs of a rollout beyond this KL, in nats; None for never.
        optimizer: ``"adam"``, ``"adamw"`` or ``"sgd"``.
        adam_eps: epsilon of Adam and AdamW.
        weight_decay: of AdamW and SGD; Adam's is an L2 penalty.
        compile: whether to compile the step on a minibatch.
    """

    def __init__(
        self,
        *,
        network: ActorCritic,
        num_steps: int,
        update_epochs: int,
        minibatch_size: int,
        gamma: float,
        advantage: str,
        gae_lambda: float,
        norm_adv: bool,
        clip_coef: float,
        clip_vloss: float | None,
        ent_coef: float,
        vf_coef: float,
        norm_value: bool,
        max_grad_norm: float | None,
        learning_rate: float,
        value_learning_rate: float,
        lr_schedule: str,
        clip_schedule: str,
        ent_schedule: str,
        warmup: float,
        adaptive_kl: float,
        adaptive_kl_final: float,
        adaptive_factor: float,
        adaptive_lr_min: float,
        adaptive_lr_max: float,
        target_kl: float | None,
        optimizer: str,
        adam_eps: float,
        weight_decay: float,
        compile: bool,
    ) -> None:
        self.network = self.actor = network
        self.horizon = num_steps
        self.update_epochs, self.minibatch_size = update_epochs, minibatch_size
        self.gamma, self.advantage, self.gae_lambda, self.norm_adv = gamma, advantage, gae_lambda, norm_adv
        self.clip_vloss, self.vf_coef = clip_vloss, vf_coef
        self.coefficients = {"clip_coef": (clip_coef, clip_schedule), "ent_coef": (ent_coef, ent_schedule)}
        self.norm_value = norm_value
        self.learning_rates, self.lr_schedule, self.warmup = (learning_rate, value_learning_rate), lr_schedule, warmup
        self.adaptive_kl, self.adaptive_kl_final, self.target_kl = adaptive_kl, adaptive_kl_final, target_kl
        self.adaptive_factor, self.adaptive_lr_bounds = adaptive_factor, (adaptive_lr_min, adaptive_lr_max)
        parameters = (network.policy_parameters(), network.value_parameters())
        self.learner = Learner(
            module=network,
            loss=self._loss,
            groups=[
                Group(some, rate, optimizer, adam_eps, weight_decay)
                for some, rate in zip(parameters, self.learning_rates, strict=True)
            ],
            clip=[((0, 1), max_grad_norm)],
            compile=compile,
            coefficients={name: first for name, (first, _) in self.coefficients.items()},
        )

    def update(self, rollout: Rollout, progress: float) -> dict[str, float]:
        """Learn from one rollout; ``progress`` in [0, 1] of the run drives the schedules. Returns metrics."""
        if self.lr_schedule != "adaptive":
            self.learner.rates = [
                rate * factor(self.lr_schedule, progress, self.warmup) for rate in self.learning_rates
            ]
        for name, (first, schedule) in self.coefficients.items():
            self.learner.coefficients[name] = first * factor(schedule, progress, self.warmup)
        advantage, target = advantages(rollout, estimator=self.advantage, gamma=self.gamma, gae_lambda=self.gae_lambda)
        if self.norm_value:
            self.network.value_head.update(target)
        r = rollout
        batch = [
            tensor.flatten(0, 1).contiguous() for tensor in (r.obs, r.action, r.log_prob, r.value, advantage, target)
        ]

        epochs: list[Tensor] = []  # the mean of the terms of the loss over each
        minibatches = math.ceil(target.numel() / self.minibatch_size)
        for _ in range(self.update_epochs):
            order = torch.randperm(target.numel(), device=target.device)
            terms = [self.learner(index, *batch) for index in order.tensor_split(minibatches)]
            epochs.append(torch.stack(terms).mean(0))
            if self.lr_schedule == "adaptive" or self.target_kl is not None:
                kl = float(epochs[-1][self.learner.terms.index("losses/approx_kl")])
                if self.lr_schedule == "adaptive":
                    self._adapt_learning_rate(kl, progress)
                if self.target_kl is not None and kl > self.target_kl:
                    break

        self.network.update_normalizer(rollout.obs)
        return {
            "charts/learning_rate": self.learner.rates[0],
            **{f"charts/{name}": value for name, value in self.learner.coefficients.items()},
            **dict(zip(self.learner.terms, torch.stack(epochs).mean(0).tolist(), strict=True)),
            "losses/explained_variance": float(explained_variance(rollout.value, target)),
        }

    def _loss(
        self,
        obs: Tensor,
        action: Tensor,
        old_log_prob: Tensor,
        old_value: Tensor,
        advantage: Tensor,
        target: Tensor,
        *,
        clip_coef: Tensor,
        ent_coef: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a minibatch of B samples, and its terms."""
        policy, value = self.network(obs)
        # LaTeX: r(\theta) = \pi_\theta(a|s) \,/\, \pi_{\theta_\mathrm{old}}(a|s)
        log_ratio = policy.log_prob(action) - old_log_prob
        ratio = log_ratio.exp()

        if self.norm_adv:
            # LaTeX: \hat A \leftarrow (\hat A - \mathrm{mean}(\hat A)) \,/\, (\mathrm{std}(\hat A) + 10^{-8})
            advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        # LaTeX: L^\pi = -\mathbb E \left[ \min( r \hat A,\ \mathrm{clip}(r, 1 - \epsilon, 1 + \epsilon) \hat A ) \right]
        clipped = ratio.clamp(1 - clip_coef, 1 + clip_coef)
        policy_loss = -torch.min(ratio * advantage, clipped * advantage).mean()

        # LaTeX: L^V = \tfrac12 \mathbb E \left[ (V(s) - G)^2 \right] / \sigma^2
        scale = self.network.value_head.std  # 1 unless the targets are normalised
        error = ((value - target) / scale).square()
        if self.clip_vloss is not None:
            # LaTeX: V^{\mathrm{clip}} = V_\mathrm{old} + \mathrm{clip}(V - V_\mathrm{old}, -\epsilon_V, \epsilon_V)
            near = old_value + (value - old_value).clamp(-self.clip_vloss * scale, self.clip_vloss * scale)
            error = torch.max(error, ((near - target) / scale).square())
        value_loss = 0.5 * error.mean()

        # LaTeX: H = \mathbb E \left[ H(\pi_\theta(\cdot|s)) \right]
        entropy = policy.entropy().mean()
        # LaTeX: L = L^\pi + c_V L^V - c_H H
        loss = policy_loss + self.vf_coef * value_loss - ent_coef * entropy

        return loss, {
            "losses/policy_loss": policy_loss,
            "losses/value_loss": value_loss,
            "losses/entropy": entropy,
            # LaTeX: \widehat{\mathrm{KL}}_1 = \mathbb E[-\log r]
            "losses/old_approx_kl": -log_ratio.mean(),
            # LaTeX: \widehat{\mathrm{KL}}_3 = \mathbb E[(r - 1) - \log r]
            "losses/approx_kl": (ratio - 1 - log_ratio).mean(),
            "losses/clipfrac": ((ratio - 1).abs() > clip_coef).float().mean(),
        }

    def _adapt_learning_rate(self, kl: float, progress: float) -> None:
        # LaTeX: \mathrm{KL}^* = (1 - \mathrm{progress}) \, \mathrm{KL}_0 + \mathrm{progress} \, \mathrm{KL}_1
        target = (1 - progress) * self.adaptive_kl + progress * self.adaptive_kl_final
        # LaTeX: \alpha \leftarrow \alpha / f \text{ if } \mathrm{KL} > \mathrm{KL}^* \text{ else } f \alpha
        (policy, value), (low, high) = self.learner.rates, self.adaptive_lr_bounds
        policy = policy / self.adaptive_factor if kl > target else policy * self.adaptive_factor
        self.learner.rates = [min(max(policy, low), high), value]

    def state_dict(self) -> State:
        """The network, with its normalisers, and the optimiser, with its learning rate."""
        return {"network": self.network.state_dict(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        self.network.load_state_dict(state["network"])
        self.learner.load_state_dict(state["learner"])
