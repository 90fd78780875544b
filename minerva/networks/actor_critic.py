"""A policy and a value function over one observation: a backbone, if there is one, hidden layers, and heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from minerva.networks.heads import BetaHead, CategoricalHead, Deviation, GaussianHead, MultiCategoricalHead
from minerva.networks.init import orthogonal
from minerva.networks.mixed import Mixed
from minerva.networks.mlp import MLP
from minerva.networks.normalizer import ObservationNormalizer, PopArt
from minerva.types import Decision, Distribution, EnvSpec

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


class ActorCritic(nn.Module):
    """Policy and value function. The observation normaliser is inside, so that checkpoints carry it.

    Args:
        spec: the environment's observations and actions.
        backbone: what makes a module of ``obs_shape=...`` that turns observations [..., *obs_shape] into features [..., out_dim];
            None for the observations as they are, flattened.
        policy_layers, value_layers: widths of the hidden layers of each, after the backbone.
        shared_encoder: whether the value is read off the policy's hidden layers; ``value_layers`` are then the same ones. Otherwise
            each has a backbone of its own.
        activation: of the hidden layers; see :data:`minerva.networks.mlp.ACTIVATIONS`.
        init, layer_norm: of the hidden layers; see :class:`minerva.networks.mlp.MLP`.
        head: of a continuous policy: ``"gaussian"``, whose actions are clipped to their bounds, ``"squashed"``, the same squashed
            into them by a tanh, or ``"beta"``.
        initial_std: first standard deviation of a continuous policy, in half-widths of the action's range.
        state_dependent_std: whether that deviation is a function of the observation.
        std: ``"exp"`` or ``"softplus"``, what makes a deviation of the network's output.
        std_bounds: the lowest and highest deviation, in half-widths; None for no bounds.
        normalize_observations: whether observations are normalised by their running statistics; bytes are divided by 255 instead.
        symlog_observations: whether their symlog is taken first.
        observation_clip: bound of a normalised observation, in standard deviations.
        popart_rate: step of the statistics of the value targets in (0, 1], where the algorithm normalises them.
        amp: ``"bf16"`` or ``"fp16"``, the precision of backbone and hidden layers; None for float32. What they are given and give, and the
            heads, are float32.
    """

    def __init__(
        self,
        *,
        spec: EnvSpec,
        backbone: Callable[..., Any] | None,
        policy_layers: Sequence[int],
        value_layers: Sequence[int],
        shared_encoder: bool,
        activation: str,
        init: str,
        layer_norm: bool,
        head: str,
        initial_std: float,
        state_dependent_std: bool,
        std: str,
        std_bounds: Sequence[float] | None,
        normalize_observations: bool,
        symlog_observations: bool,
        observation_clip: float,
        popart_rate: float,
        amp: str | None = None,
    ) -> None:
        super().__init__()
        self.stacked, self.bytes, self.normalizer = spec.frame_stack > 1, spec.obs_dtype == "uint8", None
        self.amp = PRECISIONS[amp] if amp else None
        images = [part.shape for part in spec.parts if part.image]
        self.image_size = sum(map(math.prod, images))  # the last of an observation's numbers are theirs
        shape = spec.obs_shape[1:] if self.stacked else spec.obs_shape
        if normalize_observations and not self.bytes and shape != (self.image_size,):
            shape = (*shape[:-1], shape[-1] - self.image_size)
            self.normalizer = ObservationNormalizer(shape, observation_clip, symlog_observations)

        def body(layers: Sequence[int]) -> Any:
            options: Any = {"layers": layers, "activation": activation, "init": init, "layer_norm": layer_norm}
            if backbone is None:
                return MLP(obs_shape=spec.obs_shape, **options)
            if images:
                first = Mixed(obs_shape=spec.obs_shape, images=images, backbone=backbone)
            else:
                first = backbone(obs_shape=spec.obs_shape)
            return Body(first, MLP(obs_shape=(first.out_dim,), **options))

        self.policy_body = body(policy_layers)
        self.value_body = self.policy_body if shared_encoder else body(value_layers)
        in_dim, action = self.policy_body.out_dim, spec.action
        self.policy_head: CategoricalHead | MultiCategoricalHead | GaussianHead | BetaHead
        if isinstance(action, spaces.Discrete):
            self.policy_head = CategoricalHead(in_dim=in_dim, space=action)
        elif isinstance(action, spaces.MultiDiscrete):
            self.policy_head = MultiCategoricalHead(in_dim=in_dim, space=action)
        else:
            deviation = Deviation(
                in_dim=in_dim,
                dim=action.shape[0],
                initial=initial_std,
                state_dependent=state_dependent_std,
                function=std,
                bounds=std_bounds,
            )
            if head == "beta":
                self.policy_head = BetaHead(in_dim=in_dim, space=action, deviation=deviation)
            else:
                squash = head == "squashed"
                self.policy_head = GaussianHead(in_dim=in_dim, space=action, deviation=deviation, squash=squash)
        self.value_head = PopArt(orthogonal(nn.Linear(self.value_body.out_dim, 1), gain=1.0), popart_rate)
        self.eval()  # dropout is for the loss alone

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """The action distribution and the value [...] of raw ``obs`` [..., *obs_shape]."""
        obs = self._normalize(obs)
        features = self._features(self.policy_body, obs)
        value_features = features if self.value_body is self.policy_body else self._features(self.value_body, obs)
        return self.policy_head(features), self.value_head(value_features)

    def act(self, obs: Tensor, noise: Tensor | None = None) -> Decision:
        """Sample actions for ``obs`` [N, *obs_shape] with ``noise`` [N, ...], or take the likeliest without."""
        policy = self.policy(obs)
        sample = policy.mode() if noise is None else policy.sample(noise)
        return Decision(policy.action(sample), sample, policy.params)

    def noise(self, *shape: int) -> Tensor:
        """The random numbers [*shape, ...] that as many actions take."""
        return self.policy_head.noise(*shape)

    def policy(self, obs: Tensor) -> Distribution:
        """The action distribution alone."""
        distribution: Distribution = self.policy_head(self._features(self.policy_body, self._normalize(obs)))
        return distribution

    def distribution(self, params: Tensor) -> Distribution:
        """The action distribution that had these ``params`` [..., P]."""
        return self.policy_head.distribution(params)

    def value(self, obs: Tensor) -> Tensor:
        """The value [...] alone, in the units of the return."""
        value: Tensor = self.value_head(self._features(self.value_body, self._normalize(obs)))
        return value

    def policy_parameters(self) -> list[nn.Parameter]:
        """What the policy is made of; an encoder that is shared too."""
        return [*self.policy_body.parameters(), *self.policy_head.parameters()]

    def value_parameters(self) -> list[nn.Parameter]:
        """What the value function alone is made of."""
        body = [] if self.value_body is self.policy_body else [*self.value_body.parameters()]
        return [*body, *self.value_head.parameters()]

    def update_normalizer(self, obs: Tensor) -> None:
        """Take raw observations [..., *obs_shape] into the statistics; call once a rollout, after learning from it."""
        if self.normalizer is not None:
            # Of observations that are stacked the last is new.
            obs = obs.select(-1 - self.normalizer.mean.dim(), -1) if self.stacked else obs
            self.normalizer.update(obs[..., : obs.shape[-1] - self.image_size])

    def _normalize(self, obs: Tensor) -> Tensor:
        obs = obs.float()
        if self.bytes:
            return obs / 255
        if self.image_size:
            vector, images = obs.split([obs.shape[-1] - self.image_size, self.image_size], dim=-1)
            return torch.cat([vector if self.normalizer is None else self.normalizer(vector), images / 255], dim=-1)
        return obs if self.normalizer is None else self.normalizer(obs)

    def _features(self, body: nn.Module, obs: Tensor) -> Tensor:
        if self.amp is None:
            features: Tensor = body(obs)
            return features
        # Without a cache of the weights, which a graph of a GPU would keep.
        with torch.autocast(obs.device.type, self.amp, cache_enabled=False):
            features = body(obs)
        return features.float()


class Body(nn.Sequential):
    """A backbone and the hidden layers after it."""

    def __init__(self, backbone: nn.Module, layers: MLP) -> None:
        super().__init__(backbone, layers)
        self.out_dim = layers.out_dim
