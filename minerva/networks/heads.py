"""Heads: features to an action distribution. Discrete or continuous is decided here and nowhere else."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from minerva.distributions import Categorical, Gaussian
from minerva.networks.init import orthogonal

# Weights of the last layer of a policy: all actions begin nearly alike (Andrychowicz et al. 2021, arXiv 2006.05990).
POLICY_GAIN = 0.01


class CategoricalHead(nn.Module):
    """A categorical distribution over the actions of a ``Discrete`` space."""

    def __init__(self, *, in_dim: int, space: spaces.Discrete) -> None:
        super().__init__()
        self.logits = orthogonal(nn.Linear(in_dim, int(space.n)), POLICY_GAIN)

    def forward(self, features: Tensor) -> Categorical:
        """Of ``features`` [..., in_dim]."""
        return Categorical(self.logits(features))

    def distribution(self, params: Tensor) -> Categorical:
        """The distribution that had these ``params``."""
        return Categorical(params)


class GaussianHead(nn.Module):
    """A diagonal Gaussian over a ``Box``, in the units of the environment, its deviation the same in every state.

    The network's output is taken relative to the bounds: 0 is the middle of the range, 1 its upper end and a standard
    deviation of 1 half of its width, so that a range of +-0.4 and one of +-2 are explored alike. Unbounded actions
    are taken as they are.

    Args:
        in_dim: width of the features.
        space: the action space, of shape [D].
        initial_std: first standard deviation, in half-widths of the range.
    """

    center: Tensor
    half_width: Tensor

    def __init__(self, *, in_dim: int, space: spaces.Box, initial_std: float) -> None:
        super().__init__()
        bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high)
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        self.register_buffer("center", torch.tensor((low + high) / 2, dtype=torch.float32))
        self.register_buffer("half_width", torch.tensor((high - low) / 2, dtype=torch.float32))
        self.mean = orthogonal(nn.Linear(in_dim, space.shape[0]), POLICY_GAIN)
        self.log_std = nn.Parameter(torch.full(space.shape, float(np.log(initial_std))))

    def forward(self, features: Tensor) -> Gaussian:
        """Of ``features`` [..., in_dim]."""
        mean = self.center + self.half_width * self.mean(features)
        log_std = (self.log_std + self.half_width.log()).expand_as(mean)
        return Gaussian(torch.cat([mean, log_std], dim=-1))

    def distribution(self, params: Tensor) -> Gaussian:
        """The distribution that had these ``params``."""
        return Gaussian(params)
