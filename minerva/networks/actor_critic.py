"""A policy and a value function over one normalised observation."""

from __future__ import annotations

from collections.abc import Sequence

from gymnasium import spaces
from torch import Tensor, nn

from minerva.networks.heads import CategoricalHead, GaussianHead
from minerva.networks.init import orthogonal
from minerva.networks.mlp import MLP
from minerva.networks.normalizer import ObservationNormalizer, PopArt
from minerva.types import Decision, Distribution, EnvSpec


class ActorCritic(nn.Module):
    """Perceptrons for policy and value. The observation normaliser is inside, so that checkpoints carry it.

    Args:
        spec: the environment's observations and actions.
        policy_layers, value_layers: widths of the hidden layers of each.
        shared_encoder: whether the value is read off the policy's hidden layers; ``value_layers`` are then the same ones.
        activation: of the hidden layers; see :data:`minerva.networks.mlp.ACTIVATIONS`.
        initial_std: first standard deviation of a continuous policy, in half-widths of the action's range.
        state_dependent_std: whether that deviation is a function of the observation.
        squash: whether a continuous policy is squashed into the action's bounds by a tanh.
        normalize_observations: whether observations are normalised by their running statistics.
        symlog_observations: whether their symlog is taken first.
        observation_clip: bound of a normalised observation, in standard deviations.
        popart_rate: step of the statistics of the value targets in (0, 1], where the algorithm normalises them.
    """

    def __init__(
        self,
        *,
        spec: EnvSpec,
        policy_layers: Sequence[int],
        value_layers: Sequence[int],
        shared_encoder: bool,
        activation: str,
        initial_std: float,
        state_dependent_std: bool,
        squash: bool,
        normalize_observations: bool,
        symlog_observations: bool,
        observation_clip: float,
        popart_rate: float,
    ) -> None:
        super().__init__()
        self.normalizer = None
        if normalize_observations:
            self.normalizer = ObservationNormalizer(spec.obs_shape, observation_clip, symlog_observations)
        self.policy_body = MLP(obs_shape=spec.obs_shape, layers=policy_layers, activation=activation)
        self.value_body = self.policy_body
        if not shared_encoder:
            self.value_body = MLP(obs_shape=spec.obs_shape, layers=value_layers, activation=activation)
        self.policy_head: CategoricalHead | GaussianHead
        if isinstance(spec.action, spaces.Discrete):
            self.policy_head = CategoricalHead(in_dim=self.policy_body.out_dim, space=spec.action)
        else:
            self.policy_head = GaussianHead(
                in_dim=self.policy_body.out_dim,
                space=spec.action,
                initial_std=initial_std,
                state_dependent_std=state_dependent_std,
                squash=squash,
            )
        self.value_head = PopArt(orthogonal(nn.Linear(self.value_body.out_dim, 1), gain=1.0), popart_rate)

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """The action distribution and the value [...] of raw ``obs`` [..., *obs_shape]."""
        obs = self._normalize(obs)
        features = self.policy_body(obs)
        value_features = features if self.value_body is self.policy_body else self.value_body(obs)
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
        distribution: Distribution = self.policy_head(self.policy_body(self._normalize(obs)))
        return distribution

    def distribution(self, params: Tensor) -> Distribution:
        """The action distribution that had these ``params`` [..., P]."""
        return self.policy_head.distribution(params)

    def value(self, obs: Tensor) -> Tensor:
        """The value [...] alone, in the units of the return."""
        value: Tensor = self.value_head(self.value_body(self._normalize(obs)))
        return value

    def policy_parameters(self) -> list[nn.Parameter]:
        """What the policy is made of; an encoder that is shared too."""
        return [*self.policy_body.parameters(), *self.policy_head.parameters()]

    def value_parameters(self) -> list[nn.Parameter]:
        """What the value function alone is made of."""
        body = [] if self.value_body is self.policy_body else [*self.value_body.parameters()]
        return [*body, *self.value_head.parameters()]

    def update_normalizer(self, obs: Tensor) -> None:
        """Take raw observations into the statistics; call once a rollout, after learning from it."""
        if self.normalizer is not None:
            self.normalizer.update(obs)

    def _normalize(self, obs: Tensor) -> Tensor:
        obs = obs.float()
        return obs if self.normalizer is None else self.normalizer(obs)
