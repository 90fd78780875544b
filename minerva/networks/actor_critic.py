"""A policy and a value function over one normalised observation."""

from __future__ import annotations

from collections.abc import Sequence

from gymnasium import spaces
from torch import Tensor, nn

from minerva.networks.heads import CategoricalHead, GaussianHead
from minerva.networks.init import orthogonal
from minerva.networks.mlp import MLP
from minerva.networks.normalizer import ObservationNormalizer, PopArt
from minerva.types import Distribution, EnvSpec


class ActorCritic(nn.Module):
    """Separate perceptrons for policy and value. The observation normaliser is inside, so that checkpoints carry it.

    Args:
        spec: the environment's observations and actions.
        policy_layers, value_layers: widths of the hidden layers of each.
        activation: of the hidden layers; see :data:`minerva.networks.mlp.ACTIVATIONS`.
        initial_std: first standard deviation of a continuous policy, in half-widths of the action's range.
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
        activation: str,
        initial_std: float,
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
        self.value_body = MLP(obs_shape=spec.obs_shape, layers=value_layers, activation=activation)
        self.policy_head: CategoricalHead | GaussianHead
        if isinstance(spec.action, spaces.Discrete):
            self.policy_head = CategoricalHead(in_dim=self.policy_body.out_dim, space=spec.action)
        else:
            self.policy_head = GaussianHead(in_dim=self.policy_body.out_dim, space=spec.action, initial_std=initial_std)
        self.value_head = PopArt(orthogonal(nn.Linear(self.value_body.out_dim, 1), gain=1.0), popart_rate)

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """The action distribution and the value [...] of raw ``obs`` [..., *obs_shape]."""
        obs = self._normalize(obs)
        return self.policy_head(self.policy_body(obs)), self.value_head(self.value_body(obs))

    def policy(self, obs: Tensor) -> Distribution:
        """The action distribution alone."""
        distribution: Distribution = self.policy_head(self.policy_body(self._normalize(obs)))
        return distribution

    def value(self, obs: Tensor) -> Tensor:
        """The value [...] alone, in the units of the return."""
        value: Tensor = self.value_head(self.value_body(self._normalize(obs)))
        return value

    def policy_parameters(self) -> list[nn.Parameter]:
        """What the policy is made of."""
        return [*self.policy_body.parameters(), *self.policy_head.parameters()]

    def value_parameters(self) -> list[nn.Parameter]:
        """What the value function is made of."""
        return [*self.value_body.parameters(), *self.value_head.parameters()]

    def update_normalizer(self, obs: Tensor) -> None:
        """Take raw observations into the statistics; call once a rollout, after learning from it."""
        if self.normalizer is not None:
            self.normalizer.update(obs)

    def _normalize(self, obs: Tensor) -> Tensor:
        obs = obs.float()
        return obs if self.normalizer is None else self.normalizer(obs)
