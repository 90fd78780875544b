"""Initial weights."""

from __future__ import annotations

from torch import nn


def orthogonal(layer: nn.Linear, gain: float) -> nn.Linear:
    """Orthogonal weights scaled by ``gain``, zero bias (Saxe et al. 2014, arXiv 1312.6120). Returns ``layer``."""
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer
