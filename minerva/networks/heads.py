"""Heads: features to an action distribution. Discrete or continuous is decided here and nowhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from minerva.distributions import Beta, Categorical, Gaussian, MultiCategorical, SquashedGaussian, quadrature
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


class MultiCategoricalHead(nn.Module):
    """A categorical distribution for each choice of a ``MultiDiscrete`` space of one dimension."""

    kl_parts = MultiCategorical.kl_parts

    def __init__(self, *, in_dim: int, space: spaces.MultiDiscrete) -> None:
        super().__init__()
        self.sizes = [int(n) for n in space.nvec]
        self.logits = orthogonal(nn.Linear(in_dim, sum(self.sizes)), POLICY_GAIN)

    def forward(self, features: Tensor) -> MultiCategorical:
        """Of ``features`` [..., in_dim]."""
        return self.distribution(self.logits(features))

    def noise(self, *shape: int) -> Tensor:
        """Random numbers [*shape, A_1 + ... + A_D] for as many samples."""
        return MultiCategorical.noise(*shape, sum(self.sizes), device=self.logits.weight.device)

    def distribution(self, params: Tensor) -> MultiCategorical:
        """The distribution that had these ``params``."""
        return MultiCategorical(params, self.sizes)


class Deviation(nn.Module):
    """The logarithms of D standard deviations: of the features, or the same for all states.

    Args:
        in_dim: width of the features.
        dim: D.
        initial: the first deviation.
        state_dependent: whether it is a function of the features.
        function: ``"exp"`` or ``"softplus"``, what makes a deviation of the network's output.
        bounds: the deviation stays between these; None for anywhere above 0.
    """

    def __init__(
        self,
        *,
        in_dim: int,
        dim: int,
        initial: float,
        state_dependent: bool,
        function: str,
        bounds: Sequence[float] | None,
    ) -> None:
        super().__init__()
        self.softplus, self.bounds = function == "softplus", bounds and tuple(math.log(bound) for bound in bounds)
        first = self._inverse(math.log(initial))
        self.layer = self.vector = None
        if state_dependent:
            self.layer = orthogonal(nn.Linear(in_dim, dim), POLICY_GAIN)
            nn.init.constant_(self.layer.bias, first)
        else:
            self.vector = nn.Parameter(torch.full((dim,), first))

    def forward(self, features: Tensor) -> Tensor:
        """[..., D] of ``features`` [..., in_dim]."""
        if self.layer is not None:
            return self._log_std(self.layer(features))
        assert self.vector is not None
        return self._log_std(self.vector).expand(*features.shape[:-1], len(self.vector))

    def _log_std(self, x: Tensor) -> Tensor:
        # LaTeX: \log \sigma = x \quad \text{or} \quad \log \log(1 + e^x)
        log_std = F.softplus(x).log() if self.softplus else x
        if self.bounds is None:
            return log_std
        low, high = self.bounds
        # LaTeX: \log \sigma \leftarrow l + (h - l) \, \mathrm{sigmoid}\left( 4 \, \tfrac{\log \sigma - (l + h) / 2}{h - l} \right)
        # As it was around the middle, and never without a gradient.
        return low + (high - low) * (4 * (log_std - (low + high) / 2) / (high - low)).sigmoid()

    def _inverse(self, log_std: float) -> float:
        if self.bounds is not None:
            low, high = self.bounds
            part = min(max((log_std - low) / (high - low), 0.01), 0.99)
            log_std = (low + high) / 2 + (high - low) / 4 * math.log(part / (1 - part))
        return math.log(math.expm1(math.exp(log_std))) if self.softplus else log_std


class GaussianHead(nn.Module):
    """A diagonal Gaussian over a ``Box``, in the units of the environment; squashed into its bounds if asked for.

    The network's output is taken relative to the bounds: 0 is the middle of the range, 1 its upper end and a standard
    deviation of 1 half of its width, so that a range of +-0.4 and one of +-2 are explored alike. Unbounded actions
    are taken as they are.

    Args:
        in_dim: width of the features.
        space: the action space, of shape [D].
        deviation: the standard deviation, in half-widths of the range; before squashing.
        squash: whether samples are squashed into the bounds by a tanh.

    Raises:
        UserError: squashing into bounds that there are not.
    """

    kl_parts = Gaussian.kl_parts
    center: Tensor
    half_width: Tensor
    nodes: Tensor

    def __init__(self, *, in_dim: int, space: spaces.Box, deviation: Deviation, squash: bool) -> None:
        super().__init__()
        bounded = np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high)
        if squash:
            need_bounds(bounded, "squashed")
        low, high = np.where(bounded, space.low, -1.0), np.where(bounded, space.high, 1.0)
        self.squash = squash
        self.register_buffer("center", torch.tensor((low + high) / 2, dtype=torch.float32))
        self.register_buffer("half_width", torch.tensor((high - low) / 2, dtype=torch.float32))
        self.register_buffer("nodes", quadrature().float(), persistent=False)
        self.mean = orthogonal(nn.Linear(in_dim, space.shape[0]), POLICY_GAIN)
        self.log_std = deviation

    def forward(self, features: Tensor) -> Gaussian:
        """Of ``features`` [..., in_dim]."""
        mean, log_std = self.mean(features), self.log_std(features)
        if not self.squash:
            mean, log_std = self.center + self.half_width * mean, log_std + self.half_width.log()
        return self.distribution(torch.cat([mean, log_std], dim=-1))

    def noise(self, *shape: int) -> Tensor:
        """Random numbers [*shape, D] for as many samples."""
        return Gaussian.noise(*shape, 2 * self.mean.out_features, device=self.mean.weight.device)

    def distribution(self, params: Tensor) -> Gaussian:
        """The distribution that had these ``params``."""
        return SquashedGaussian(params, self.center, self.half_width, self.nodes) if self.squash else Gaussian(params)


class BetaHead(nn.Module):
    """A Beta distribution for each dimension of a bounded ``Box``, within its bounds.

    Args:
        in_dim: width of the features.
        space: the action space, of shape [D].
        deviation: about the standard deviation where the mode is in the middle, in half-widths of the range; 0.58 is the
            uniform distribution's, and what is above that comes near it.

    Raises:
        UserError: the space has no bounds.
    """

    kl_parts = Beta.kl_parts
    low: Tensor
    width: Tensor

    def __init__(self, *, in_dim: int, space: spaces.Box, deviation: Deviation) -> None:
        super().__init__()
        need_bounds(np.isfinite(space.low) & np.isfinite(space.high) & (space.low < space.high), "beta")
        self.register_buffer("low", torch.tensor(space.low, dtype=torch.float32))
        self.register_buffer("width", torch.tensor(space.high - space.low, dtype=torch.float32))
        self.mode = orthogonal(nn.Linear(in_dim, space.shape[0]), POLICY_GAIN)
        self.log_std = deviation

    def forward(self, features: Tensor) -> Beta:
        """Of ``features`` [..., in_dim]."""
        # LaTeX: k = 1 / s^2: of modes in the middle, the standard deviation is 1 / \sqrt{k + 3} half-widths
        return self.distribution(torch.cat([self.mode(features), -2 * self.log_std(features)], dim=-1))

    def noise(self, *shape: int) -> Tensor:
        """Random numbers [*shape, ...] for as many samples."""
        return Beta.noise(*shape, 2 * self.mode.out_features, device=self.mode.weight.device)

    def distribution(self, params: Tensor) -> Beta:
        """The distribution that had these ``params``."""
        return Beta(params, self.low, self.width)


def need_bounds(bounded: np.ndarray, head: str) -> None:
    """Refuse a ``head`` whose actions have bounds, where the environment's have none."""
    if not bounded.all():
        raise UserError(f"network.head={head}: allowed is gaussian, for the actions of this environment have no bounds")
