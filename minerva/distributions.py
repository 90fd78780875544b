"""Action distributions. Each is made of one tensor, ``params`` [..., P], so that a rollout can keep it.

A *sample* is what was drawn, an *action* what the environment gets for it: the two differ for a squashed distribution alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


class MultiCategorical:
    """Independent choices, of which the d-th is among A_d actions.

    Args:
        params: [..., A_1 + ... + A_D], unnormalised log-probabilities, choice after choice.
        sizes: A_1, ..., A_D.
    """

    kl_parts: tuple[str, ...] = ("kl",)

    def __init__(self, params: Tensor, sizes: Sequence[int]) -> None:
        self.params, self.sizes = params, list(sizes)
        self.choices = [Categorical(part) for part in params.split(self.sizes, dim=-1)]

    @staticmethod
    def noise(*shape: int, device: torch.device) -> Tensor:
        """What chance adds to the ``params`` of shape ``shape``: Gumbel's distribution."""
        return Categorical.noise(*shape, device=device)

    def sample(self, noise: Tensor | None = None) -> Tensor:
        """Actions [..., D], int64."""
        noise = self.noise(*self.params.shape, device=self.params.device) if noise is None else noise
        parts = noise.split(self.sizes, dim=-1)
        return torch.stack([choice.sample(part) for choice, part in zip(self.choices, parts, strict=True)], dim=-1)

    def mode(self) -> Tensor:
        """The likeliest actions [..., D], int64."""
        return torch.stack([choice.mode() for choice in self.choices], dim=-1)

    def action(self, sample: Tensor) -> Tensor:
        """``sample`` itself."""
        return sample

    def log_prob(self, sample: Tensor) -> Tensor:
        """log p(sample) [...]."""
        # LaTeX: \log p(a) = \sum_d \log p_d(a_d)
        parts = zip(self.choices, sample.unbind(-1), strict=True)
        return torch.stack([choice.log_prob(part) for choice, part in parts]).sum(0)

    def entropy(self) -> Tensor:
        """Entropy [...] in nats."""
        # LaTeX: H = \sum_d H(p_d)
        return torch.stack([choice.entropy() for choice in self.choices]).sum(0)

    def kl(self, new: MultiCategorical) -> dict[str, Tensor]:
        """``{"kl": KL(self || new) [...]}``."""
        # LaTeX: \mathrm{KL} = \sum_d \mathrm{KL}(p_d \,\|\, q_d)
        pairs = zip(self.choices, new.choices, strict=True)
        return {"kl": torch.stack([mine.kl(other)["kl"] for mine, other in pairs]).sum(0)}


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


class Beta:
    """Independent Beta distributions over a vector of D actions within bounds (Chou et al. 2017, PMLR 70:834).

    A sample x is in (0, 1); the action, which probabilities are of, is l + w x. Alpha and beta are above 1: there is one mode.

    Args:
        params: [..., 2D], the logits of the modes and then the logarithms of the concentrations alpha + beta - 2.
        low: l [D], the lower bounds.
        width: w [D], the distance to the upper ones.
    """

    kl_parts: tuple[str, ...] = ("kl",)
    tries = 8  # of the rejection sampler, which refuses less than 5 % of them: all in 4e-11 of all cases

    def __init__(self, params: Tensor, low: Tensor, width: Tensor) -> None:
        self.params, self.low, self.width = params, low, width
        # What follows is of small differences of large numbers: float64.
        self.logit, log_concentration = params.double().chunk(2, dim=-1)
        concentration = log_concentration.exp()
        # LaTeX: \alpha = 1 + k \, m, \qquad \beta = 1 + k \, (1 - m)
        self.alpha, self.beta = 1 + concentration * self.logit.sigmoid(), 1 + concentration * (-self.logit).sigmoid()

    @staticmethod
    def noise(*shape: int, device: torch.device) -> Tensor:
        """Normal numbers and logarithms of uniform ones [..., 2, tries, 2D], for two gamma variates to each action."""
        size = (*shape[:-1], Beta.tries, shape[-1])
        log_uniform = -torch.empty(size, device=device).exponential_()
        return torch.stack([torch.randn(size, device=device), log_uniform], dim=-3)

    def sample(self, noise: Tensor | None = None) -> Tensor:
        """Samples [..., D], without gradient, of two gamma variates each (Marsaglia and Tsang 2000, ACM TOMS 26:363)."""
        noise = self.noise(*self.params.shape, device=self.params.device) if noise is None else noise
        normal, log_uniform = noise.unbind(-3)
        # LaTeX: d = \alpha - \tfrac13, \quad v = (1 + z / \sqrt{9 d})^3, \quad \log u < \tfrac12 z^2 + d - d v + d \log v
        d = torch.cat([self.alpha, self.beta], dim=-1).detach().to(self.params.dtype).unsqueeze(-2) - 1 / 3
        root = 1 + normal / (9 * d).sqrt()
        v = root.clamp_min(1e-3) ** 3
        accepted = (root > 0) & (log_uniform < 0.5 * normal.square() + d * (1 - v + v.log()))
        first = accepted.float().argmax(-2, keepdim=True)
        one, other = (d * v).gather(-2, first).squeeze(-2).chunk(2, dim=-1)
        # LaTeX: X \sim \Gamma(\alpha),\ Y \sim \Gamma(\beta) \ \Rightarrow\ X / (X + Y) \sim \mathrm{Beta}(\alpha, \beta)
        return (one / (one + other)).clamp(1e-6, 1 - 1e-6)

    def mode(self) -> Tensor:
        """The likeliest samples [..., D]."""
        # LaTeX: m = (\alpha - 1) / (\alpha + \beta - 2)
        return self.logit.sigmoid().to(self.params.dtype)

    def action(self, sample: Tensor) -> Tensor:
        """``sample``, in the units of the bounds."""
        return self.low + self.width * sample

    def log_prob(self, sample: Tensor) -> Tensor:
        """log p(action(sample)) [...]."""
        # LaTeX: \log p(a) = \sum_i \left[ (\alpha_i - 1) \log x_i + (\beta_i - 1) \log(1 - x_i) - \log B_i - \log w_i \right]
        sample = sample.double()
        inside = (self.alpha - 1) * sample.log() + (self.beta - 1) * (-sample).log1p()
        return (inside - self._log_norm() - self.width.log()).sum(-1).to(self.params.dtype)

    def entropy(self) -> Tensor:
        """Entropy of the action [...] in nats."""
        # LaTeX: H = \sum_i \left[ \log B - (\alpha - 1) \psi(\alpha) - (\beta - 1) \psi(\beta) + (\alpha + \beta - 2) \psi(\alpha + \beta) + \log w \right]
        inside = self._log_norm() - self._expected(self.alpha - 1, self.beta - 1)
        return (inside + self.width.log()).sum(-1).to(self.params.dtype)

    def kl(self, new: Beta) -> dict[str, Tensor]:
        """``{"kl": KL(self || new) [...]}``."""
        # LaTeX: \mathrm{KL} = \sum_i \left[ \log \tfrac{B'}{B} + (\alpha - \alpha') \psi(\alpha) + (\beta - \beta') \psi(\beta) - (\alpha + \beta - \alpha' - \beta') \psi(\alpha + \beta) \right]
        change = self._expected(self.alpha - new.alpha, self.beta - new.beta)
        return {"kl": (new._log_norm() - self._log_norm() + change).sum(-1).to(self.params.dtype)}

    def _log_norm(self) -> Tensor:
        # LaTeX: \log B(\alpha, \beta) = \log \Gamma(\alpha) + \log \Gamma(\beta) - \log \Gamma(\alpha + \beta)
        return self.alpha.lgamma() + self.beta.lgamma() - (self.alpha + self.beta).lgamma()

    def _expected(self, one: Tensor, other: Tensor) -> Tensor:
        # LaTeX: \mathbb E \left[ c \log x + c' \log(1 - x) \right] = c \, \psi(\alpha) + c' \, \psi(\beta) - (c + c') \, \psi(\alpha + \beta)
        return (
            one * self.alpha.digamma()
            + other * self.beta.digamma()
            - (one + other) * (self.alpha + self.beta).digamma()
        )
