"""A transformer over the tokens of an observation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from minerva.errors import UserError


class Transformer(nn.Module):
    """Sequences [..., L, *token_shape] to features [..., out_dim] of the last token, which has looked at all of them.

    Pre-norm blocks (Xiong et al. 2020, arXiv 2002.04745) of attention (Vaswani et al. 2017, arXiv 1706.03762); places are learned.

    Args:
        obs_shape: (L, *token_shape).
        seq_len: L, where a sequence is made of the last L observations by ``env.frame_stack``; 1, where an observation is one.
        d_model: width of a token within, and of the features.
        heads: of the attention; they share ``d_model`` among them.
        layers: blocks.
        dropout: in [0, 1), while learning.

    Attributes:
        out_dim: ``d_model``.

    Raises:
        UserError: the observations are no sequences, or of another length.
    """

    def __init__(
        self, *, obs_shape: Sequence[int], seq_len: int, d_model: int, heads: int, layers: int, dropout: float
    ) -> None:
        super().__init__()
        if len(obs_shape) < 2 or seq_len not in (1, obs_shape[0]):
            raise UserError(
                f"network.backbone.seq_len={seq_len}: allowed is the same as env.frame_stack, or 1 where an observation is a sequence; "
                f"here it has the shape {list(obs_shape)}"
            )
        self.token_dims = len(obs_shape) - 1
        self.embed = nn.Linear(math.prod(obs_shape[1:]), d_model)
        self.place = nn.Parameter(0.02 * torch.randn(obs_shape[0], d_model))
        self.blocks = nn.Sequential(*(Block(d_model, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(d_model)
        self.out_dim = d_model

    def forward(self, obs: Tensor) -> Tensor:
        """Features [..., out_dim] of ``obs`` [..., L, *token_shape]."""
        tokens = self.embed(obs.flatten(-self.token_dims)) + self.place
        features: Tensor = self.norm(self.blocks(tokens)[..., -1, :])
        return features


class Block(nn.Module):
    """Attention among tokens [..., L, width], and a perceptron on each; both are added to what they are given."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, nn.Dropout(dropout) if dropout else nn.Identity()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[..., L, width]."""
        x = x + self.dropout(self._attention(self.norm1(x)))
        result: Tensor = x + self.dropout(self.mlp(self.norm2(x)))
        return result

    def _attention(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        # LaTeX: \mathrm{softmax}\left( Q K^\top / \sqrt{d} \right) V
        query, key, value = (part.transpose(-3, -2) for part in (query, key, value))
        weight = (query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])).softmax(-1)
        result: Tensor = self.out((weight @ value).transpose(-3, -2).flatten(-2))
        return result
