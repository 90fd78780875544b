"""Lagrange multipliers of V-MPO (Song et al. 2019, arXiv 1909.12238)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

MINIMUM = 1e-8  # of every multiplier (Song et al. 2019, section 4.2.2)
BISECTIONS = 64


def temperature_loss(temperature: Tensor, advantage: Tensor, log_prior: Tensor, epsilon: float) -> Tensor:
    """The dual of the E-step; its gradient is epsilon - KL(psi || prior), psi being :func:`temperature_weights`.

    Args:
        temperature: eta > 0, a scalar.
        advantage: A [K], at any scale.
        log_prior: log q [K], normalised: the samples' weights before their advantages count. log(1/K) for equal ones.
        epsilon: bound of the KL, in nats.
    """
    # LaTeX: L_\eta = \eta \, \epsilon_\eta + \eta \log \sum_{i \in \tilde{\mathcal D}} q_i \, e^{A_i / \eta}
    # The largest advantage is taken out of the exponential, and added again in front of it.
    best = advantage.max()
    return temperature * (epsilon + torch.logsumexp((advantage - best) / temperature + log_prior, 0)) + best


def temperature_weights(temperature: Tensor, advantage: Tensor, log_prior: Tensor) -> Tensor:
    """psi [K], sums to 1. Arguments as for :func:`temperature_loss`."""
    # LaTeX: \psi_i = q_i \, e^{A_i / \eta} \,\big/\, \sum_{j \in \tilde{\mathcal D}} q_j \, e^{A_j / \eta}
    return torch.softmax((advantage - advantage.max()) / temperature + log_prior, 0)


def temperature_kl(temperature: Tensor, advantage: Tensor, log_prior: Tensor) -> Tensor:
    """KL(psi || prior) in nats, a scalar. Arguments as for :func:`temperature_loss`."""
    # LaTeX: \mathrm{KL}(\psi \| q) = \sum_i \psi_i \log (\psi_i / q_i)
    scaled = (advantage - advantage.max()) / temperature
    log_ratio = scaled - torch.logsumexp(scaled + log_prior, 0)
    psi = (log_ratio + log_prior).exp()
    return torch.where(psi > 0, psi * log_ratio, 0).sum()


def solve_temperature(advantage: Tensor, log_prior: Tensor, epsilon: float) -> Tensor:
    """The minimum of :func:`temperature_loss`: the eta at which KL(psi || prior) is epsilon, or ``MINIMUM`` if none is that large.

    The KL falls as eta rises, so it is bisected, in the logarithm of eta. From above eta is bounded, because
    KL <= range(A)^2 / (8 eta^2) (Hoeffding's lemma under psi).
    """
    spread = advantage.max() - advantage.min()
    low = torch.full_like(spread, math.log(MINIMUM))
    # LaTeX: \eta^* \le (\max A - \min A) \,/\, \sqrt{8 \epsilon_\eta}
    high = (spread / math.sqrt(8 * epsilon)).clamp_min(MINIMUM).log()
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_large = temperature_kl(middle.exp(), advantage, log_prior) > epsilon
        low, high = torch.where(too_large, middle, low), torch.where(too_large, high, middle)
    return high.exp().clamp_min(MINIMUM)
