"""Steps the environments with the current policy and keeps what happened."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from minerva.errors import UserError
from minerva.types import Algorithm, RewardTransform, Rollout, State, VectorEnv


class Collector:
    """Fills rollouts of T steps of N environments.

    Only the actor runs while stepping; values and log-probabilities follow for the whole rollout at once.

    Args:
        env: the environments; reset here.
        algo: chooses the actions.
        reward_transform: from raw rewards to those the algorithm learns from; its state is kept with this one's.
        seed: of the environments.
        device: where the networks are; the rollout is made on the CPU and moved there once.
    """

    def __init__(
        self,
        *,
        env: VectorEnv,
        algo: Algorithm,
        reward_transform: RewardTransform,
        seed: int,
        device: torch.device,
    ) -> None:
        self.env, self.algo, self.reward_transform, self.device = env, algo, reward_transform, device
        steps, num, spec = algo.horizon, env.num_envs, env.spec
        self._obs = torch.zeros(steps, num, *spec.obs_shape, dtype=getattr(torch, spec.obs_dtype))
        self._final_obs = torch.zeros_like(self._obs)
        self._reward = torch.zeros(steps, num)
        self._terminated = torch.zeros(steps, num, dtype=torch.bool)
        self._truncated = torch.zeros(steps, num, dtype=torch.bool)

        self._next_obs = torch.as_tensor(env.reset(seed)).clone()
        self._episode_return = np.zeros(num)
        self._episode_length = np.zeros(num, dtype=np.int64)
        self._cut = np.full(num, env.stagger > 0)  # the first episodes, which may be cut short, are not counted
        self._finished: list[tuple[float, int]] = []  # return and length of episodes since the last metrics

    @torch.no_grad()
    def collect(self, step: int) -> Rollout:
        """The next T steps of all environments; ``step`` is the first one's number, for messages.

        Raises:
            UserError: an observation or reward is not finite.
        """
        samples, policies = [], []
        for t in range(self.algo.horizon):
            self._obs[t] = self._next_obs
            decision = self.algo.act(self._next_obs.to(self.device))
            samples.append(decision.sample)
            policies.append(decision.policy)
            outcome = self.env.step(decision.action.cpu().numpy())
            ended = outcome.terminated | outcome.truncated
            self._check_finite(
                step + t * self.env.num_envs,
                observation=outcome.final_obs,
                reward=outcome.reward,
                first_observation=outcome.obs,
            )
            self._count_episodes(outcome.reward, ended)
            self._reward[t] = torch.as_tensor(self.reward_transform(outcome.reward, ended))
            self._terminated[t] = torch.as_tensor(outcome.terminated)
            self._truncated[t] = torch.as_tensor(outcome.truncated)
            self._final_obs[t] = torch.as_tensor(outcome.final_obs)
            self._next_obs.copy_(torch.as_tensor(outcome.obs))
        return self._rollout(torch.stack(samples), torch.stack(policies))

    def metrics(self) -> dict[str, float]:
        """Mean raw return and length of the episodes that ended since the last call; NaN where none did."""
        returns, lengths = zip(*self._finished, strict=True) if self._finished else ([np.nan], [np.nan])
        self._finished = []
        return {"train/episode_return": float(np.mean(returns)), "train/episode_length": float(np.mean(lengths))}

    def state_dict(self) -> State:
        """The environments, the reward's scale, and the episodes under way."""
        return {
            "env": self.env.state_dict(),
            "reward_transform": self.reward_transform.state_dict(),
            "obs": self._next_obs.clone(),
            "episode_return": torch.from_numpy(self._episode_return.copy()),
            "episode_length": torch.from_numpy(self._episode_length.copy()),
            "cut": torch.from_numpy(self._cut.copy()),
            "finished": list(self._finished),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        self.env.load_state_dict(state["env"])
        self.reward_transform.load_state_dict(state["reward_transform"])
        self._next_obs = state["obs"].clone()
        self._episode_return = state["episode_return"].numpy().copy()
        self._episode_length = state["episode_length"].numpy().copy()
        self._cut = state["cut"].numpy().copy()
        self._finished = list(state["finished"])

    def _rollout(self, action: Tensor, policy: Tensor) -> Rollout:
        obs = self._obs.to(self.device, copy=True)
        terminated, truncated = self._terminated.to(self.device, copy=True), self._truncated.to(self.device, copy=True)
        value = self.algo.value(obs)
        # What followed is the next row's observation, but for the last row, and for episodes that were cut. A
        # terminated episode's next value is never used.
        next_value = torch.cat([value[1:], self.algo.value(self._next_obs.to(self.device))[None]])
        if truncated.any():
            next_value[truncated] = self.algo.value(self._final_obs[self._truncated].to(self.device))
        return Rollout(
            obs=obs,
            action=action,
            reward=self._reward.to(self.device, copy=True),
            terminated=terminated,
            truncated=truncated,
            log_prob=self.algo.log_prob(policy, action),
            value=value,
            next_value=next_value,
            policy=policy,
        )

    def _count_episodes(self, reward: np.ndarray, ended: np.ndarray) -> None:
        self._episode_return += reward
        self._episode_length += 1
        for i in np.flatnonzero(ended):
            if not self._cut[i]:
                self._finished.append((float(self._episode_return[i]), int(self._episode_length[i])))
            self._cut[i] = False
            self._episode_return[i] = self._episode_length[i] = 0

    @staticmethod
    def _check_finite(step: int, **quantities: np.ndarray) -> None:
        for name, array in quantities.items():
            if not np.isfinite(array).all():
                bad = np.argwhere(~np.isfinite(array))[0]
                raise UserError(
                    f"{name} of environment {bad[0]} is {array[tuple(bad)]} at step {step}: the environment is at "
                    "fault, or an action it cannot bear; what was learned before is in checkpoints/failed.pt"
                )
