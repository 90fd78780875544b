"""A multi-layer perceptron."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from torch import Tensor, nn

from minerva.networks.init import orthogonal

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "leaky_relu": nn.LeakyReLU,
}


class MLP(nn.Module):
    """Observations [..., *obs_shape] to features [..., out_dim].

    Args:
        obs_shape: shape of one observation; flattened.
        layers: width of each hidden layer; none makes it the identity.
        activation: a key of ``ACTIVATIONS``.
        init: ``"orthogonal"``, with a gain of sqrt 2, or ``"default"``, which is PyTorch's.
        layer_norm: whether to normalise each layer before its activation (Ba et al. 2016, arXiv 1607.06450).

    Attributes:
        out_dim: width of the features.
    """

    def __init__(
        self, *, obs_shape: Sequence[int], layers: Sequence[int], activation: str, init: str, layer_norm: bool
    ) -> None:
        super().__init__()
        widths = [math.prod(obs_shape), *layers]
        modules: list[nn.Module] = [nn.Flatten(-len(obs_shape))] if len(obs_shape) > 1 else []
        for before, after in itertools.pairwise(widths):
            linear = nn.Linear(before, after)
            modules.append(orthogonal(linear, math.sqrt(2)) if init == "orthogonal" else linear)
            modules += [nn.LayerNorm(after)] if layer_norm else []
            modules.append(ACTIVATIONS[activation]())
        self.layers = nn.Sequential(*modules)
        self.out_dim = widths[-1]

    def forward(self, obs: Tensor) -> Tensor:
        """Features [..., out_dim] of ``obs`` [..., *obs_shape]."""
        features: Tensor = self.layers(obs)
        return features
