"""Normalisation of observations and of value targets; their statistics are buffers, so checkpoints carry them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def symlog(x: Tensor) -> Tensor:
    """sign(x) log(1 + |x|), elementwise."""
    # LaTeX: \mathrm{symlog}(x) = \mathrm{sign}(x) \log(1 + |x|)
    return x.sign() * x.abs().log1p()


class ObservationNormalizer(nn.Module):
    """(obs - mean) / std over all observations it was updated with, clipped; of their symlog where asked for.

    The symlog (Hafner et al. 2023, arXiv 2301.04104, eq. 9) is linear near 0 and logarithmic beyond. Without it a quantity
    with rare large values, such as an angle that winds up, is divided by a deviation that hides its ordinary ones.

    It never changes by itself: an algorithm calls :meth:`update` once a rollout, after learning from it, so that the
    policy that is trained on a rollout sees what the policy that collected it saw.

    Args:
        shape: shape of one observation.
        clip: bound of the result, in standard deviations.
        symlog: whether to take the symlog first.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, shape: Sequence[int], clip: float, symlog: bool) -> None:
        super().__init__()
        self.clip, self.symlog = clip, symlog
        self.register_buffer("mean", torch.zeros(*shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(*shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        # What forward uses: float32, and made once an update.
        self.register_buffer("shift", torch.zeros(*shape))
        self.register_buffer("scale", torch.ones(*shape))

    def forward(self, obs: Tensor) -> Tensor:
        """``obs`` [..., *shape], normalised."""
        if self.symlog:
            obs = symlog(obs)
        # LaTeX: \bar s = \mathrm{clip}\left( (s - \mu) / \sqrt{\sigma^2 + \epsilon},\ -c,\ c \right)
        return ((obs - self.shift) * self.scale).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def update(self, obs: Tensor) -> None:
        """Take ``obs`` [..., *shape] into the statistics (Chan et al. 1979, parallel variance)."""
        obs = obs.reshape(-1, *self.mean.shape).double()
        if self.symlog:
            obs = symlog(obs)
        variance, mean = torch.var_mean(obs, dim=0, correction=0)
        delta, total = mean - self.mean, self.count + len(obs)
        # LaTeX: \mu \leftarrow \mu + (\mu_b - \mu) \, n_b / (n + n_b)
        self.mean += delta * len(obs) / total
        # LaTeX: \sigma^2 \leftarrow \frac{n \sigma^2 + n_b \sigma_b^2}{n + n_b} + (\mu_b - \mu)^2 \, \frac{n \, n_b}{(n + n_b)^2}
        self.variance.copy_(
            (self.count * self.variance + len(obs) * variance) / total
            + delta.square() * self.count * len(obs) / total.square()
        )
        self.count.copy_(total)
        self.shift.copy_(self.mean)
        self.scale.copy_((self.variance + 1e-8).rsqrt())


class PopArt(nn.Module):
    """A value head whose targets may be normalised without changing what it predicts (van Hasselt et al. 2016).

    Until :meth:`update` is called it is a plain linear layer of one output.

    Args:
        linear: the layer to wrap, [in_dim] -> [1].
        rate: step of the running statistics in (0, 1] (arXiv 1602.07714, eq. 4).
    """

    mean: Tensor
    square: Tensor
    std: Tensor
    shift: Tensor
    weight: Tensor

    def __init__(self, linear: nn.Linear, rate: float) -> None:
        super().__init__()
        self.linear, self.rate = linear, rate
        # The variance is a small difference of large numbers: float64.
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("square", torch.ones((), dtype=torch.float64))
        self.register_buffer("std", torch.ones(()))
        self.register_buffer("shift", torch.zeros(()))
        self.register_buffer("weight", torch.zeros(()))

    def forward(self, features: Tensor) -> Tensor:
        """Values [...], in the units of the return."""
        # LaTeX: V(s) = \sigma \, (w^\top h(s) + b) + \mu
        return self.std * self.linear(features).squeeze(-1) + self.shift

    @torch.no_grad()
    def update(self, target: Tensor) -> None:
        """Take value targets [...] into the statistics, and change the layer so that V stays what it was."""
        # The weights sum to one from the first update on, so that the initial guess does not linger.
        self.weight.mul_(1 - self.rate).add_(self.rate)
        step = (self.rate / self.weight).double()
        target = target.double()
        mean = torch.lerp(self.mean, target.mean(), step)
        self.square.lerp_(target.square().mean(), step)
        # LaTeX: \sigma = \sqrt{\nu - \mu^2}, \quad \sigma \in [10^{-2}, 10^6]
        std = (self.square - mean.square()).clamp_min(0).sqrt().clamp(1e-2, 1e6)
        # LaTeX: w \leftarrow \tfrac{\sigma}{\sigma'} w, \qquad b \leftarrow \tfrac{\sigma b + \mu - \mu'}{\sigma'}
        self.linear.weight *= self.std / std
        self.linear.bias.copy_((self.std * self.linear.bias + self.mean - mean) / std)
        self.mean.copy_(mean)
        self.shift.copy_(mean)
        self.std.copy_(std)
