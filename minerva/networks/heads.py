"""Heads: features to an action distribution. Discrete or continuous is decided here and nowhere else."""

from __future__ import annotations

import math

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from minerva.distributions import Categorical, Gaussian, SquashedGaussian, quadrature
from minerva.errors import UserError
from minerva.networks.init import orthogonal

# Weights of the last layer of a policy: all actions begin nearly alike (Andrychowicz et al. 2021, arXiv 2006.05990).
POLICY_GAIN = 0.01


class CategoricalHead(nn.Module):
    """A categorical distribution over the actions of a ``Discrete`` space."""

    kl_parts = Categorical.kl_parts

    def __init__(self, *, in_dim: int, space: spaces.Discrete) -> None:
        super().__init__()
        self.logits = orthogonal(nn.Linear(in_dim, int(space.n)), POLICY_GAIN)

    def forward(self, features: Tensor) -> Categorical:
        """Of ``features`` [..., in_dim]."""
        return Categorical(self.logits(features))

    def noise(self, *shape: int) -> Tensor:
        """Random numbers [*shape, A] for as many samples."""
        return Categorical.noise(*shape, self.logits.out_features, device=self.logits.weight.device)

    def distribution(self, params: Tensor) -> Categorical:
        """The distribution that had these ``params``."""
        return Categorical(params)


class GaussianHead(nn.Module):
    """A diagonal Gaussian over a ``Box``, in the units of the environment; squashed into its bounds if asked for.

    The network's output is taken relative to the bounds: 0 is the middle of the range, 1 its upper end and a standard
    deviation of 1 half of its width, so that a range of +-0.4 and one of +-2 are explored alike. Unbounded actions
    are taken as they are.

    Args:
        in_dim: width of the features.
        space: the action space, of shape [D].
        initial_std: first standard deviation, in half-widths of the range; before squashing.
        state_dependent_std: whether the deviation is a function of the features, or one vector for all states.
        squash: whether samples are squashed into the bounds by a tanh.

    Raises:
        UserError: squashing into bounds that there are not.
    """

    kl_parts = Gaussian.kl_parts
    center: Tensor
    half_width: Tensor
    nodes: Tensor

    def __init__(
        self, *, in_dim: int, space: spaces.Box, initial_std: float, state_dependent_std: bool, squash: bool
    ) -> None:
        super().__init__()
        bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high)
        if squash and not bounded.all():
            raise UserError("network.squash=true: allowed is false, for the actions of this environment have no bounds")
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        self.squash = squash
        self.register_buffer("center", torch.tensor((low + high) / 2, dtype=torch.float32))
        self.register_buffer("half_width", torch.tensor((high - low) / 2, dtype=torch.float32))
        self.register_buffer("nodes", quadrature().float(), persistent=False)
        self.mean = orthogonal(nn.Linear(in_dim, space.shape[0]), POLICY_GAIN)
        self.log_std: nn.Parameter | nn.Linear
        if state_dependent_std:
            self.log_std = orthogonal(nn.Linear(in_dim, space.shape[0]), POLICY_GAIN)
            nn.init.constant_(self.log_std.bias, math.log(initial_std))
        else:
            self.log_std = nn.Parameter(torch.full(space.shape, math.log(initial_std)))

    def forward(self, features: Tensor) -> Gaussian:
        """Of ``features`` [..., in_dim]."""
        mean = self.mean(features)
        log_std = self.log_std(features) if isinstance(self.log_std, nn.Linear) else self.log_std.expand_as(mean)
        if not self.squash:
            mean, log_std = self.center + self.half_width * mean, log_std + self.half_width.log()
        return self.distribution(torch.cat([mean, log_std], dim=-1))

    def noise(self, *shape: int) -> Tensor:
        """Random numbers [*shape, D] for as many samples."""
        return Gaussian.noise(*shape, 2 * self.mean.out_features, device=self.mean.weight.device)

    def distribution(self, params: Tensor) -> Gaussian:
        """The distribution that had these ``params``."""
        return SquashedGaussian(params, self.center, self.half_width, self.nodes) if self.squash else Gaussian(params)
