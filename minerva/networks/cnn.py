"""A convolutional network."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from minerva.errors import UserError
from minerva.networks.init import orthogonal
from minerva.networks.mlp import ACTIVATIONS


class CNN(nn.Module):
    """Images [..., *obs_shape] to features [..., out_dim]; by default of the shape of Nature-DQN's (Mnih et al. 2015).

    Args:
        obs_shape: of one observation: [height, width], with channels first or last (there are fewer of them than there are rows); a
            dimension before these is of images that follow one another, whose channels are put together.
        channels: of each layer.
        kernels, strides: of each layer, the same in height and width.
        activation: a key of :data:`minerva.networks.mlp.ACTIVATIONS`.

    Attributes:
        out_dim: width of the features.

    Raises:
        UserError: the observations are no images, or too small for the kernels.
    """

    def __init__(
        self,
        *,
        obs_shape: Sequence[int],
        channels: Sequence[int],
        kernels: Sequence[int],
        strides: Sequence[int],
        activation: str,
    ) -> None:
        super().__init__()
        self.obs_shape = tuple(obs_shape)
        if not 2 <= len(self.obs_shape) <= 4:
            raise UserError(f"network=cnn: allowed are images; the observations have the shape {list(self.obs_shape)}")
        count, height, width = self._images(torch.zeros(1, *self.obs_shape)).shape[1:]
        modules: list[nn.Module] = []
        for out, kernel, stride in zip(channels, kernels, strides, strict=True):
            height, width = ((length - kernel) // stride + 1 for length in (height, width))
            if min(height, width) < 1:
                raise UserError(
                    f"network.backbone.kernels={list(kernels)}: allowed are kernels that fit into the observations, whose shape is "
                    f"{list(self.obs_shape)}"
                )
            modules += [orthogonal(nn.Conv2d(count, out, kernel, stride), math.sqrt(2)), ACTIVATIONS[activation]()]
            count = out
        self.layers = nn.Sequential(*modules, nn.Flatten())
        self.out_dim = count * height * width

    def forward(self, obs: Tensor) -> Tensor:
        """Features [..., out_dim] of ``obs`` [..., *obs_shape]."""
        batch = obs.shape[: obs.dim() - len(self.obs_shape)]
        features: Tensor = self.layers(self._images(obs.reshape(-1, *self.obs_shape)))
        return features.reshape(*batch, self.out_dim)

    def _images(self, obs: Tensor) -> Tensor:
        """[B, channels, height, width] of ``obs`` [B, *obs_shape]; the channels of a pixel lie together, which convolutions like best."""
        if len(self.obs_shape) == 2:
            return obs.unsqueeze(1)
        first, last = self.obs_shape[-3], self.obs_shape[-1]
        if last < first:
            obs = obs.movedim(-1, -3)
        return obs.flatten(1, -3).contiguous(memory_format=torch.channels_last)
