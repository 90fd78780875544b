"""V-MPO: on-policy maximum a posteriori policy optimisation (Song et al. 2019, arXiv 1909.12238).

Where this departs from the paper, and why: docs/vmpo.md.
"""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn

from minerva.duals import MINIMUM, solve_temperature, temperature_kl, temperature_loss, temperature_weights
from minerva.learner import Group, Learner
from minerva.networks.actor_critic import ActorCritic
from minerva.returns import advantages, explained_variance
from minerva.schedules import factor
from minerva.types import Rollout, State

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
        lr_schedule: of both, see :func:`minerva.schedules.factor`.
        warmup: part of the run, in [0, 1), that a schedule with a warm-up rises in.
        max_grad_norm: bound of the norm of the policy's gradient; None for none.
        value_max_grad_norm: bound of the norm of the gradient of the value function alone; None for none.
        compile: whether to compile the step on a minibatch.
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
        warmup: float,
        max_grad_norm: float | None,
        value_max_grad_norm: float | None,
        compile: bool,
    ) -> None:
        self.network, self.horizon = network, num_steps
        self.m_steps, self.minibatch_size, self.target_period = m_steps, minibatch_size, target_period
        self.gamma, self.advantage, self.gae_lambda, self.norm_adv = gamma, advantage, gae_lambda, norm_adv
        self.topk_fraction, self.solve_eta, self.norm_value = topk_fraction, temperature == "solve", norm_value
        self.epsilon_eta = epsilon_eta
        self.epsilon = {"mean": epsilon_mu, "std": epsilon_sigma, "kl": epsilon_kl}
        self.learning_rates, self.lr_schedule, self.warmup = (learning_rate, value_learning_rate), lr_schedule, warmup
        # The target acts. It sees observations as the policy does: the normaliser is one for both.
        self.target = self.actor = copy.deepcopy(network, {id(network.normalizer): network.normalizer})
        self.updates = 0

        policy, value = network.policy_parameters(), network.value_parameters()
        device = policy[0].device
        self.eta = nn.Parameter(torch.tensor(temperature_init, dtype=torch.float64, device=device))
        self.eta_learner = Learner(
            module=nn.ParameterList([self.eta]),
            loss=self._eta_loss,
            groups=[Group([self.eta], temperature_lr, minimum=MINIMUM)],
            clip=[],
            compile=False,
        )
        self.alpha = nn.ParameterDict(
            {part: torch.tensor(alpha_init, device=device) for part in network.policy_head.kl_parts}
        )
        alphas = [*self.alpha.values()]
        self.learner = Learner(
            module=nn.ModuleDict({"network": network, "alpha": self.alpha}),
            loss=self._losses,
            groups=[
                Group(policy, learning_rate, optimizer, adam_eps),
                Group(value, value_learning_rate, optimizer, adam_eps),
                Group(alphas, alpha_lr, minimum=MINIMUM),
            ],
            clip=[((0,), max_grad_norm), ((1,), value_max_grad_norm)],
            compile=compile,
        )

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
        scale = factor(self.lr_schedule, progress, self.warmup)
        self.learner.rates[:2] = [rate * scale for rate in self.learning_rates]
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
            "charts/learning_rate": self.learner.rates[0],
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
                self.eta_learner(torch.arange(len(best), device=best.device), best, log_prior)
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

    def _eta_loss(self, best: Tensor, log_prior: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        loss = temperature_loss(self.eta, best, log_prior, self.epsilon_eta)
        return loss, {"vmpo/dual_loss": loss}

    def _m_step(self, rollout: Rollout, psi: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Fit policy and value function; returns the means of the terms of their losses."""
        # B psi has mean one, so that its mean over a minibatch estimates the sum of psi over the batch.
        weight = len(psi) * psi
        batch = [tensor.flatten(0, 1).contiguous() for tensor in (rollout.obs, rollout.action, rollout.policy)]
        batch += [weight, target.flatten()]
        minibatches = math.ceil(len(psi) / (self.minibatch_size or len(psi)))
        terms = [
            self.learner(index, *batch)
            for _ in range(self.m_steps)
            for index in torch.randperm(len(psi), device=psi.device).tensor_split(minibatches)
        ]
        return dict(zip(self.learner.terms, torch.stack(terms).mean(0), strict=True))

    def _losses(
        self, obs: Tensor, action: Tensor, old: Tensor, weight: Tensor, target: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a minibatch, and its terms; ``old`` are the parameters of the target's policy."""
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
        # LaTeX: L = L_\pi + L_\alpha + L_V
        loss = policy_loss + alpha_loss + value_loss
        return loss, {
            "loss/total": loss,
            "loss/policy": policy_loss,
            "loss/policy_weighted_nll": nll,
            **{f"loss/policy_kl_{PARTS[part][0]}_pen": penalty[part] for part in penalty},
            "loss/alpha": alpha_loss,
            "loss/value": value_loss,
        }

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
            "eta_learner": self.eta_learner.state_dict(),
            "alpha": self.alpha.state_dict(),
            "learner": self.learner.state_dict(),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        self.network.load_state_dict(state["network"])
        self.target.load_state_dict(state["target"])
        self.updates = state["updates"]
        with torch.no_grad():
            self.eta.copy_(state["eta"])
        self.eta_learner.load_state_dict(state["eta_learner"])
        self.alpha.load_state_dict(state["alpha"])
        self.learner.load_state_dict(state["learner"])
