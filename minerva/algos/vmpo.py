"""V-MPO: on-policy maximum a posteriori policy optimisation (Song et al. 2019, arXiv 1909.12238).

Where this departs from the paper, and why: docs/vmpo.md.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict

import torch
from torch import Tensor, nn

from minerva.duals import MINIMUM, solve_temperature, temperature_kl, temperature_loss, temperature_weights
from minerva.networks.actor_critic import ActorCritic
from minerva.returns import advantages, explained_variance
from minerva.types import Decision, Rollout, State

OPTIMIZERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
# The parts of a policy's KL as Distribution.kl names them: what metrics call each, and the suffix of its alpha and epsilon.
PARTS = {"mean": ("mean", "mu"), "std": ("std", "sigma"), "kl": ("all", "kl")}


class VMPO:
    """V-MPO for discrete and continuous actions.

    Args:
        network: policy and value function.
        num_steps: T, steps of each environment in a rollout.
        m_steps: passes of the M-step over a rollout.
        minibatch_size: samples in a step of the M-step, at most; None for the whole rollout.
        target_period: rollouts between copies of the policy to the target, which acts.
        gamma: discount in [0, 1].
        advantage: ``"gae"``, ``"returns"`` or ``"dae"``; see :func:`minerva.returns.advantages`.
        gae_lambda: lambda of GAE in [0, 1].
        norm_adv: normalise the advantages of each rollout.
        topk_fraction: part of the samples, in (0, 1], that the E-step keeps: those of largest advantage.
        temperature: how eta is found: ``"solve"`` for each rollout, or ``"gradient"``, by ``m_steps`` steps of Adam a rollout.
        temperature_init: first eta, >= 1e-8; of no effect where it is solved.
        temperature_lr: learning rate of eta; of no effect where it is solved.
        alpha_init: first alphas, >= 1e-8.
        alpha_lr: their learning rate.
        epsilon_eta: bound of KL(psi || uniform), or of that to the samples' weights, in nats.
        epsilon_mu, epsilon_sigma: bounds of the parts of a continuous policy's KL, in nats.
        epsilon_kl: bound of a discrete policy's KL, in nats.
        norm_value: normalise the value targets (PopArt, arXiv 1602.07714).
        optimizer: ``"adam"`` or ``"sgd"``.
        adam_eps: epsilon of Adam.
        learning_rate: the first learning rate of the policy, > 0.
        value_learning_rate: the first learning rate of the value function alone (an encoder that is shared has the
            policy's), > 0.
        lr_schedule: ``"constant"``, or ``"linear"`` to 0 at the end, for both.
        max_grad_norm: bound of the norm of the policy's gradient; None for none.
        value_max_grad_norm: bound of the norm of the gradient of the value function alone; None for none.
    """

    def __init__(
        self,
        *,
        network: ActorCritic,
        num_steps: int,
        m_steps: int,
        minibatch_size: int | None,
        target_period: int,
        gamma: float,
        advantage: str,
        gae_lambda: float,
        norm_adv: bool,
        topk_fraction: float,
        temperature: str,
        temperature_init: float,
        temperature_lr: float,
        alpha_init: float,
        alpha_lr: float,
        epsilon_eta: float,
        epsilon_mu: float,
        epsilon_sigma: float,
        epsilon_kl: float,
        norm_value: bool,
        optimizer: str,
        adam_eps: float,
        learning_rate: float,
        value_learning_rate: float,
        lr_schedule: str,
        max_grad_norm: float | None,
        value_max_grad_norm: float | None,
    ) -> None:
        self.network, self.horizon = network, num_steps
        self.m_steps, self.minibatch_size, self.target_period = m_steps, minibatch_size, target_period
        self.gamma, self.advantage, self.gae_lambda, self.norm_adv = gamma, advantage, gae_lambda, norm_adv
        self.topk_fraction, self.solve_eta, self.norm_value = topk_fraction, temperature == "solve", norm_value
        self.epsilon_eta = epsilon_eta
        self.epsilon = {"mean": epsilon_mu, "std": epsilon_sigma, "kl": epsilon_kl}
        self.learning_rates, self.lr_schedule = (learning_rate, value_learning_rate), lr_schedule
        self.max_grad_norms = (max_grad_norm, value_max_grad_norm)
        # The target sees observations as the policy does: the normaliser is one for both.
        self.target = copy.deepcopy(network, {id(network.normalizer): network.normalizer})
        self.updates = 0

        eps = {} if optimizer == "sgd" else {"eps": adam_eps}
        self.policy_and_value = (network.policy_parameters(), network.value_parameters())
        groups = [{"params": p, "lr": lr} for p, lr in zip(self.policy_and_value, self.learning_rates, strict=True)]
        self.optimizer = OPTIMIZERS[optimizer](groups, fused=True, **eps)
        device = self.policy_and_value[0][0].device
        self.eta = torch.tensor(temperature_init, dtype=torch.float64, device=device, requires_grad=True)
        self.alpha = {
            part: torch.tensor(alpha_init, device=device, requires_grad=True) for part in network.policy_head.kl_parts
        }
        self.dual_optimizer = torch.optim.Adam(
            [{"params": [self.eta], "lr": temperature_lr}, {"params": [*self.alpha.values()], "lr": alpha_lr}]
        )

    @torch.no_grad()
    def act(self, obs: Tensor, deterministic: bool = False) -> Decision:
        """Sample actions of the target for ``obs`` [N, *obs_shape], or take its likeliest."""
        policy = self.target.policy(obs)
        sample = policy.mode() if deterministic else policy.sample()
        return Decision(policy.action(sample), sample, policy.params)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        """V(obs) [...]."""
        return self.network.value(obs)

    @torch.no_grad()
    def log_prob(self, policy: Tensor, action: Tensor) -> Tensor:
        """log p(action) [...] under the distributions of parameters ``policy``."""
        return self.network.distribution(policy).log_prob(action)

    def update(
        self,
        rollout: Rollout,
        progress: float,
        restarting_weights: Tensor | None = None,
        importance_weights: Tensor | None = None,
    ) -> dict[str, float]:
        """Learn from one rollout.

        Args:
            rollout: B = T N samples, of the target's actions.
            progress: in [0, 1] of the run, for the schedule.
            restarting_weights: [T, N] >= 0; a sample of weight 0 (an action that had no effect) is left out of the
                E-step. None for 1.
            importance_weights: [T, N] >= 0, for samples that another policy acted. None for 1.

        Returns:
            Metrics.

        Raises:
            ValueError: no sample has weights above 0.
        """
        if self.lr_schedule == "linear":
            # LaTeX: \beta = \beta_0 \, (1 - \mathrm{progress})
            for group, rate in zip(self.optimizer.param_groups, self.learning_rates, strict=True):
                group["lr"] = rate * (1 - progress)
        advantage, target = advantages(rollout, estimator=self.advantage, gamma=self.gamma, gae_lambda=self.gae_lambda)
        if self.norm_value:
            self.network.value_head.update(target)
        restarting = torch.ones_like(advantage) if restarting_weights is None else restarting_weights
        importance = torch.ones_like(advantage) if importance_weights is None else importance_weights
        before = nn.utils.parameters_to_vector(self.network.parameters()).detach().clone()

        psi, selected, metrics = self._e_step(advantage.flatten(), restarting.flatten(), importance.flatten())
        metrics |= self._m_step(rollout, psi, target)

        with torch.no_grad():
            metrics |= self._outcome(rollout, selected)
            metrics |= {
                "train/param_delta": (nn.utils.parameters_to_vector(self.network.parameters()) - before).norm(),
                "adv/raw_mean": advantage.mean(),
                "adv/raw_std": advantage.std(),
                "returns/raw_mean": target.mean(),
                "returns/raw_std": target.std(),
                "value/explained_var": explained_variance(rollout.value, target),
                "value/pred_mean": rollout.value.mean(),
                "value/pred_std": rollout.value.std(),
                "vmpo/restarting_frac": (restarting > 0).double().mean(),
                "vmpo/importance_mean": importance.mean(),
            }
        self.updates += 1
        if self.updates % self.target_period == 0:
            self.target.load_state_dict(self.network.state_dict())
        self.network.update_normalizer(rollout.obs)
        values = torch.stack([value.double() for value in metrics.values()]).tolist()
        return {
            "charts/learning_rate": self.optimizer.param_groups[0]["lr"],
            "vmpo/epsilon_eta": self.epsilon_eta,
            **dict(zip(metrics, values, strict=True)),
        }

    def _e_step(
        self, advantage: Tensor, restarting: Tensor, importance: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """psi [B] of sum 1, which samples make D~ [B] (psi is zero elsewhere), and metrics; all arguments are [B]."""
        prior = (restarting * importance).double()
        valid = prior > 0
        if not valid.any():
            raise ValueError("restarting_weights and importance_weights: at least one sample must be above 0 in both")
        if self.norm_adv:
            # LaTeX: A \leftarrow (A - \mathrm{mean}(A)) \,/\, (\mathrm{std}(A) + 10^{-8})
            advantage = (advantage - advantage[valid].mean()) / (advantage[valid].std(correction=0) + 1e-8)
        # LaTeX: \tilde{\mathcal D} = \{ i : A_i \ge A_{(k)} \}, \quad k = \lfloor f \, |\mathcal D| \rfloor
        # Ties with the last are all in: to choose among them would be to choose by their place in the rollout.
        candidates = advantage[valid]
        threshold = candidates.topk(max(1, int(self.topk_fraction * len(candidates)))).values[-1]
        selected = valid & ~(advantage < threshold)  # NaN is in, so that the loss shows it
        best, log_prior = advantage[selected].double(), prior[selected].log().log_softmax(0)

        if self.solve_eta:
            with torch.no_grad():
                self.eta.copy_(solve_temperature(best, log_prior, self.epsilon_eta))
        else:
            for _ in range(self.m_steps):
                self.dual_optimizer.zero_grad()
                temperature_loss(self.eta, best, log_prior, self.epsilon_eta).backward()
                self._step_duals()
        with torch.no_grad():
            psi = torch.zeros_like(advantage)
            psi[selected] = temperature_weights(self.eta, best, log_prior).to(psi.dtype)
            metrics = {
                "vmpo/temperature_raw": self.eta.clone(),
                "vmpo/dual_loss": temperature_loss(self.eta, best, log_prior, self.epsilon_eta),
                "vmpo/kl_over_epsilon_eta": temperature_kl(self.eta, best, log_prior) / self.epsilon_eta,
                "vmpo/adv_std_over_temperature": candidates.std(correction=0) / self.eta,
                "vmpo/selected_frac": selected.double().mean(),
                "vmpo/threshold": threshold,
                # LaTeX: \mathrm{ESS} = 1 \,/\, \textstyle\sum_i \psi_i^2
                "vmpo/ess": 1 / psi.square().sum(),
            }
        return psi, selected, metrics

    def _m_step(self, rollout: Rollout, psi: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Fit policy and value function; returns the means of the terms of their losses."""
        obs, action, old = rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1), rollout.policy.flatten(0, 1)
        # B psi has mean one, so that its mean over a minibatch estimates the sum of psi over the batch.
        weight, target = len(obs) * psi, target.flatten()
        minibatches = math.ceil(len(obs) / (self.minibatch_size or len(obs)))
        terms = defaultdict(list)
        for _ in range(self.m_steps):
            for index in torch.randperm(len(obs), device=obs.device).tensor_split(minibatches):
                losses = self._losses(obs[index], action[index], old[index], weight[index], target[index])
                self.optimizer.zero_grad()
                self.dual_optimizer.zero_grad()
                losses["loss/total"].backward()
                for parameters, bound in zip(self.policy_and_value, self.max_grad_norms, strict=True):
                    if bound is not None:
                        nn.utils.clip_grad_norm_(parameters, bound)
                self.optimizer.step()
                self._step_duals()
                for name, loss in losses.items():
                    terms[name].append(loss.detach())
        return {name: torch.stack(values).mean() for name, values in terms.items()}

    def _losses(self, obs: Tensor, action: Tensor, old: Tensor, weight: Tensor, target: Tensor) -> dict[str, Tensor]:
        """The terms of the loss of a minibatch; ``old`` are the parameters of the target's policy."""
        policy, value = self.network(obs)
        # LaTeX: L_\pi = -\sum_{i \in \tilde{\mathcal D}} \psi_i \log \pi_\theta(a_i|s_i)
        nll = -(weight * policy.log_prob(action)).mean()

        # LaTeX: \mathrm{KL}_p = \mathbb E_{s \in \mathcal D} \left[ D_p(\pi_{\theta_\mathrm{target}}(\cdot|s) \,\|\, \pi_\theta(\cdot|s)) \right], \quad p \in \{\mu, \Sigma\}
        kl = {part: kl.mean() for part, kl in self.network.distribution(old).kl(policy).items()}
        # LaTeX: L_\alpha = \sum_p \alpha_p \, (\epsilon_p - \mathrm{sg}[\mathrm{KL}_p]) + \mathrm{sg}[\alpha_p] \, \mathrm{KL}_p
        alpha_loss = torch.stack([self.alpha[part] * (self.epsilon[part] - kl[part].detach()) for part in kl]).sum()
        penalty = {part: self.alpha[part].detach() * kl[part] for part in kl}
        policy_loss = nll + torch.stack([*penalty.values()]).sum()

        # LaTeX: L_V = \tfrac12 \mathbb E_{s \in \mathcal D} \left[ (V(s) - G)^2 \right] / \sigma^2
        scale = self.network.value_head.std  # 1 unless the targets are normalised
        value_loss = 0.5 * ((value - target) / scale).square().mean()
        return {
            # LaTeX: L = L_\pi + L_\alpha + L_V
            "loss/total": policy_loss + alpha_loss + value_loss,
            "loss/policy": policy_loss,
            "loss/policy_weighted_nll": nll,
            **{f"loss/policy_kl_{PARTS[part][0]}_pen": penalty[part] for part in penalty},
            "loss/alpha": alpha_loss,
            "loss/value": value_loss,
        }

    @torch.no_grad()
    def _step_duals(self) -> None:
        self.dual_optimizer.step()
        for dual in (self.eta, *self.alpha.values()):
            dual.clamp_(min=MINIMUM)

    def _outcome(self, rollout: Rollout, selected: Tensor) -> dict[str, Tensor]:
        """What the M-step came to: the policy now, against the one that acted."""
        old, new = self.network.distribution(rollout.policy), self.network.policy(rollout.obs)
        metrics = {
            "train/entropy": new.entropy().mean(),
            "train/mean_abs_action": old.action(rollout.action).float().abs().mean(),
        }
        for part, kl in old.kl(new).items():
            name, letter = PARTS[part]
            metrics |= {
                f"kl/{name}": kl.mean(),
                f"kl/{name}_sel": kl.flatten()[selected].mean(),
                f"vmpo/alpha_{letter}": self.alpha[part].clone(),
                f"vmpo/kl_over_epsilon_{letter}": kl.mean() / self.epsilon[part],
            }
        return metrics

    def state_dict(self) -> State:
        """The network, with its normalisers, the target, the multipliers, and the optimisers of all."""
        return {
            "network": self.network.state_dict(),
            "target": self.target.state_dict(),
            "updates": self.updates,
            "eta": self.eta.detach().clone(),
            "alpha": {part: alpha.detach().clone() for part, alpha in self.alpha.items()},
            "optimizer": self.optimizer.state_dict(),
            "dual_optimizer": self.dual_optimizer.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        self.updates = state["updates"]
        with torch.no_grad():
            self.eta.copy_(state["eta"])
            for part, alpha in self.alpha.items():
                alpha.copy_(state["alpha"][part])
        self.optimizer.load_state_dict(state["optimizer"])
        self.dual_optimizer.load_state_dict(state["dual_optimizer"])
