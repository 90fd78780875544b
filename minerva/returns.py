"""Returns and advantages of a rollout. All tensors are [T, N]."""

from __future__ import annotations

import torch
from torch import Tensor

from minerva.types import Rollout


def advantages(rollout: Rollout, *, estimator: str, gamma: float, gae_lambda: float) -> tuple[Tensor, Tensor]:
    """Advantages, and the value targets (advantage + value) that belong to them.

    Args:
        rollout: with its values.
        estimator: ``"gae"``; ``"returns"``, the discounted return minus the value; or ``"dae"``, the one-step estimate
            r + gamma V(s') - V(s), which is not the Direct Advantage Estimation of arXiv 2109.06093.
        gamma: discount in [0, 1].
        gae_lambda: lambda of GAE in [0, 1]; of no use to the others.
    """
    r = rollout
    if estimator == "returns":
        target = discounted_returns(r.reward, r.next_value, r.terminated, r.truncated, gamma=gamma)
        # LaTeX: \hat A_t = G_t - V(s_t)
        return target - r.value, target
    # LaTeX: \hat A_t = r_t + \gamma (1 - d_t) V(s_{t+1}) - V(s_t) \quad (\lambda = 0)
    gae_lambda = 0.0 if estimator == "dae" else gae_lambda
    return gae(r.reward, r.value, r.next_value, r.terminated, r.truncated, gamma=gamma, gae_lambda=gae_lambda)


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    gamma: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, eq. 16).

    A terminated episode is worth nothing from there on. A truncated one was only cut: its last step bootstraps from
    ``next_value``, the value of the observation it was cut at.

    Args:
        reward: r_t.
        value: V(s_t).
        next_value: V(s_{t+1}), of the observation that really followed, not of the next episode's first.
        terminated, truncated: bool, whether step t ended its episode, and how.
        gamma: discount in [0, 1].
        gae_lambda: lambda in [0, 1]; 0 is the one-step advantage, 1 the whole return minus the value.

    Returns:
        The advantages, and the lambda-returns (advantage + value) that the value function is fitted to.
    """
    # LaTeX: \delta_t = r_t + \gamma (1 - d_t) V(s_{t+1}) - V(s_t)
    delta = reward + gamma * next_value * ~terminated - value
    # LaTeX: \hat A_t = \delta_t + \gamma \lambda (1 - e_t) \hat A_{t+1}
    decay = gamma * gae_lambda * (~(terminated | truncated)).to(reward.dtype)
    advantage = accumulate(delta, decay)
    return advantage, advantage + value


def discounted_returns(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, *, gamma: float
) -> Tensor:
    """Discounted return of every step to its episode's end, or to the rollout's, where the value takes over.

    Args are those of :func:`gae`.
    """
    ended = terminated | truncated
    bootstrapped = ended.clone()
    bootstrapped[-1] = True
    # LaTeX: G_t = r_t + \gamma \left[ e_t (1 - d_t) V(s_{t+1}) + (1 - e_t) G_{t+1} \right]
    return accumulate(reward + gamma * next_value * (bootstrapped & ~terminated), gamma * ~ended)


def accumulate(x: Tensor, decay: Tensor) -> Tensor:
    """y of y_t = x_t + decay_t y_{t+1}, with nothing after the last; in log2(T) operations on all of a rollout."""
    y, span = x.clone(), 1
    while span < len(x):
        # y_t has x_t to x_{t+span-1} by now, and decay_t is the product of as many.
        # LaTeX: y_t \leftarrow y_t + c_t \, y_{t+s}, \qquad c_t \leftarrow c_t \, c_{t+s}, \qquad s = 1, 2, 4, \ldots
        y[:-span] += decay[: len(x) - span] * y[span:]
        decay = decay[:-span] * decay[span:]
        span *= 2
    return y


def explained_variance(prediction: Tensor, target: Tensor) -> Tensor:
    """1 - Var[target - prediction] / Var[target]: 1 is perfect, 0 no better than the mean; NaN for constant targets."""
    # LaTeX: 1 - \mathrm{Var}[G - V] \,/\, \mathrm{Var}[G]
    variance = target.var()
    return torch.where(variance > 0, 1 - (target - prediction).var() / variance, torch.nan)
