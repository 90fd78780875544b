"""Action distributions. Each is made of one tensor, ``params`` [..., P], so that a rollout can keep it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor


class Categorical:
    """A choice among A actions.

    Args:
        params: [..., A], unnormalised log-probabilities.
    """

    def __init__(self, params: Tensor) -> None:
        self.params = params
        self.log_probs = F.log_softmax(params, dim=-1)

    def sample(self) -> Tensor:
        """Actions [...], int64."""
        probs = self.log_probs.detach().exp()
        return torch.multinomial(probs.view(-1, probs.shape[-1]), 1).view(probs.shape[:-1])

    def mode(self) -> Tensor:
        """The likeliest actions [...], int64."""
        return self.params.argmax(dim=-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """log p(action) [...]."""
        return self.log_probs.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)

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

    def __init__(self, params: Tensor) -> None:
        self.params = params
        self.mean, self.log_std = params.chunk(2, dim=-1)
        self.std = self.log_std.exp()

    def sample(self) -> Tensor:
        """Actions [..., D]."""
        return torch.normal(self.mean.detach(), self.std.detach())

    def mode(self) -> Tensor:
        """The means [..., D]."""
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        """log p(action) [...]."""
        # LaTeX: \log p(a) = -\sum_i \left[ \tfrac{(a_i - \mu_i)^2}{2\sigma_i^2} + \log \sigma_i + \tfrac12 \log 2\pi \right]
        z = (action - self.mean) / self.std
        return -(0.5 * z.square() + self.log_std + 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats."""
        # LaTeX: H = \sum_i \left[ \log \sigma_i + \tfrac12 \log 2\pi e \right]
        return (self.log_std + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)

    def kl(self, new: Gaussian) -> dict[str, Tensor]:
        """``{"mean", "std"}``: what the change of the mean and that of the deviation contribute to KL(self || new).

        Each part is measured at the other quantity of ``self``'s side (Song et al. 2019, arXiv 1909.12238, eq. 25
        and 26): the means under the old deviation, the deviations with equal means.
        """
        # LaTeX: C_\mu = \tfrac12 \sum_i (\mu_i - \mu'_i)^2 / \sigma_i^2
        mean = 0.5 * ((self.mean - new.mean) / self.std).square().sum(-1)
        # LaTeX: C_\Sigma = \sum_i \left[ \log \tfrac{\sigma'_i}{\sigma_i} + \tfrac{\sigma_i^2}{2\sigma_i'^2} - \tfrac12 \right]
        change = new.log_std - self.log_std
        std = (change + 0.5 * torch.exp(-2 * change) - 0.5).sum(-1)
        return {"mean": mean, "std": std}
