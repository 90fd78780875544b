"""Action distributions. Each is made of one tensor, ``params`` [..., P], so that a rollout can keep it.

A *sample* is what was drawn, an *action* what the environment gets for it: the two differ for a squashed distribution alone.
"""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor


class Categorical:
    """A choice among A actions.

    Args:
        params: [..., A], unnormalised log-probabilities.
    """

    kl_parts: tuple[str, ...] = ("kl",)

    def __init__(self, params: Tensor) -> None:
        self.params = params
        self.log_probs = F.log_softmax(params, dim=-1)

    @staticmethod
    def noise(*shape: int, device: torch.device) -> Tensor:
        """What chance adds to the ``params`` of shape ``shape``: Gumbel's distribution."""
        # LaTeX: g = -\log e, \quad e \sim \mathrm{Exp}(1)
        return -torch.empty(*shape, device=device).exponential_().log()

    def sample(self, noise: Tensor | None = None) -> Tensor:
        """Actions [...], int64, by the Gumbel-max trick (Maddison et al. 2014, arXiv 1411.0030)."""
        noise = self.noise(*self.params.shape, device=self.params.device) if noise is None else noise
        # LaTeX: \arg\max_a \left[ \log p(a) + g_a \right] \sim p
        return (self.log_probs + noise).argmax(dim=-1)

    def mode(self) -> Tensor:
        """The likeliest actions [...], int64."""
        return self.params.argmax(dim=-1)

    def action(self, sample: Tensor) -> Tensor:
        """``sample`` itself."""
        return sample

    def log_prob(self, sample: Tensor) -> Tensor:
        """log p(sample) [...]."""
        return self.log_probs.gather(-1, sample.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats."""
        # LaTeX: H = -\sum_a p(a) \log p(a)
        return -(self.log_probs.exp() * self.log_probs).sum(-1)

    def kl(self, new: Categorical) -> dict[str, Tensor]:
        """``{"kl": KL(self || new) [...]}``."""
        # LaTeX: \mathrm{KL} = \sum_a p(a) \, (\log p(a) - \log q(a))
        return {"kl": (self.log_probs.exp() * (self.log_probs - new.log_probs)).sum(-1)}


class Gaussian:
    """Independent normal distributions over a vector of D actions.

    Args:
        params: [..., 2D], the means and then the logarithms of the standard deviations.
    """

    kl_parts: tuple[str, ...] = ("mean", "std")

    def __init__(self, params: Tensor) -> None:
        self.params = params
        self.mean, self.log_std = params.chunk(2, dim=-1)
        self.std = self.log_std.exp()

    @staticmethod
    def noise(*shape: int, device: torch.device) -> Tensor:
        """What chance adds to the means, which are half of the ``params`` of shape ``shape``."""
        return torch.randn(*shape[:-1], shape[-1] // 2, device=device)

    def sample(self, noise: Tensor | None = None) -> Tensor:
        """Samples [..., D], without gradient."""
        noise = self.noise(*self.params.shape, device=self.params.device) if noise is None else noise
        return self.mean.detach() + self.std.detach() * noise

    def mode(self) -> Tensor:
        """The means [..., D]."""
        return self.mean

    def action(self, sample: Tensor) -> Tensor:
        """``sample`` itself."""
        return sample

    def log_prob(self, sample: Tensor) -> Tensor:
        """log p(sample) [...]."""
        # LaTeX: \log p(a) = -\sum_i \left[ \tfrac{(a_i - \mu_i)^2}{2\sigma_i^2} + \log \sigma_i + \tfrac12 \log 2\pi \right]
        z = (sample - self.mean) / self.std
        return -(0.5 * z.square() + self.log_std + 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats."""
        # LaTeX: H = \sum_i \left[ \log \sigma_i + \tfrac12 \log 2\pi e \right]
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def kl(self, new: Gaussian) -> dict[str, Tensor]:
        """``{"mean", "std"}`` [...]: what the change of the mean and that of the deviation contribute to KL(self || new).

        Each part is measured at the other quantity of ``self``'s side (Song et al. 2019, arXiv 1909.12238, eq. 25
        and 26): the means under the old deviation, the deviations with equal means.
        """
        # LaTeX: C_\mu = \tfrac12 \sum_i (\mu_i - \mu'_i)^2 / \sigma_i^2
        mean = 0.5 * ((self.mean - new.mean) / self.std).square().sum(-1)
        # LaTeX: C_\Sigma = \sum_i \left[ \log \tfrac{\sigma'_i}{\sigma_i} + \tfrac{\sigma_i^2}{2\sigma_i'^2} - \tfrac12 \right]
        change = new.log_std - self.log_std
        std = (change + 0.5 * torch.exp(-2 * change) - 0.5).sum(-1)
        return {"mean": mean, "std": std}


def quadrature() -> Tensor:
    """32 nodes and weights [2, 32] of Gauss-Hermite quadrature, for expectations under a standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(32)
    return torch.from_numpy(np.stack([nodes, weights / weights.sum()]))


class SquashedGaussian(Gaussian):
    """A Gaussian whose samples u become the actions c + h tanh(u), within bounds (Haarnoja et al. 2018, arXiv 1801.01290).

    Log-probabilities are of the action, but taken from the sample: tanh cannot be inverted near the bounds. The KL is that of the
    Gaussians, for a bijection changes none; so its decoupled parts are exact too.

    Args:
        params: [..., 2D], of the Gaussian.
        center: c [D], the middle of the bounds.
        half_width: h [D], half of their distance.
        nodes: what :func:`quadrature` gives, where the parameters are.
    """

    def __init__(self, params: Tensor, center: Tensor, half_width: Tensor, nodes: Tensor) -> None:
        super().__init__(params)
        self.center, self.half_width, self.nodes = center, half_width, nodes

    def action(self, sample: Tensor) -> Tensor:
        """``sample``, squashed into the bounds."""
        return self.center + self.half_width * sample.tanh()

    def log_prob(self, sample: Tensor) -> Tensor:
        """log p(action(sample)) [...]."""
        # LaTeX: \log p(a) = \log \mathcal N(u; \mu, \sigma) - \sum_i \log \tfrac{\partial a_i}{\partial u_i}
        return super().log_prob(sample) - self._log_slope(sample).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy of the action [...] in nats; its expectation by quadrature with 32 nodes a dimension."""
        nodes, weights = self.nodes.to(self.mean.dtype)
        # LaTeX: H = H(\mathcal N) + \sum_i \mathbb E_u \left[ \log \tfrac{\partial a_i}{\partial u_i} \right]
        slope = self._log_slope(self.mean[..., None, :] + nodes[:, None] * self.std[..., None, :])
        return super().entropy() + (slope.sum(-1) * weights).sum(-1)

    def _log_slope(self, sample: Tensor) -> Tensor:
        # LaTeX: \log \tfrac{\partial a}{\partial u} = \log h + \log(1 - \tanh^2 u) = \log h + 2 (\log 2 - u - \log(1 + e^{-2u}))
        return self.half_width.log() + 2 * (math.log(2) - sample - F.softplus(-2 * sample))
