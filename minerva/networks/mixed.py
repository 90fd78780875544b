"""Observations of vectors and images at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Mixed(nn.Module):
    """Vectors and images [..., F] to features [..., out_dim]: each image goes through a backbone of its own, the vectors join what comes out.

    Args:
        obs_shape: (F,), or (L, F) of the last L observations.
        images: the shape of each; they are the last of the F numbers, one after the other.
        backbone: makes a module of ``obs_shape=...``, of an image or of L.
    """

    def __init__(
        self, *, obs_shape: Sequence[int], images: Sequence[Sequence[int]], backbone: Callable[..., Any]
    ) -> None:
        super().__init__()
        *stack, size = obs_shape
        self.shapes = [tuple(shape) for shape in images]
        self.sizes = [math.prod(shape) for shape in images]
        self.sizes.insert(0, size - sum(self.sizes))
        self.flatten = nn.Flatten(-len(obs_shape))
        self.backbones = nn.ModuleList(backbone(obs_shape=(*stack, *shape)) for shape in images)
        self.out_dim: int = math.prod(stack) * self.sizes[0] + sum(made.out_dim for made in self.backbones)  # type: ignore[misc]

    def forward(self, obs: Tensor) -> Tensor:
        """Features [..., out_dim] of ``obs`` [..., *obs_shape]."""
        vector, *images = obs.split(self.sizes, dim=-1)
        features = [
            backbone(image.unflatten(-1, shape))
            for backbone, image, shape in zip(self.backbones, images, self.shapes, strict=True)
        ]
        return torch.cat([self.flatten(vector), *features], dim=-1)
