"""Steps the environments with the current policy and keeps what happened."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from minerva.arrays import acting
from minerva.errors import NotFiniteError
from minerva.types import Algorithm, RewardTransform, Rollout, State, VectorEnv


class Collector:
    """Fills rollouts of T steps of N environments.

    Only what must happen between two steps does: the policy, and the environments. Values, log-probabilities, statistics of
    episodes and the transformation of rewards follow for the whole rollout at once.

    Args:
        env: the environments; reset here.
        algo: its actor chooses the actions.
        reward_transform: from raw rewards to those the algorithm learns from; its state is kept with this one's.
        seed: of the environments.
        device: where the networks are; the rollout is made on the CPU and moved there once.

    Attributes:
        seed: as given.
        env_seconds: time spent in the environments.
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
        self.seed = seed
        steps, num, spec = algo.horizon, env.num_envs, env.spec
        # One row more than steps: the last is what the next rollout begins with.
        self._obs = torch.zeros(steps + 1, num, *spec.obs_shape, dtype=getattr(torch, spec.obs_dtype))
        self._reward = torch.zeros(steps, num)
        self._terminated, self._truncated = torch.zeros(2, steps, num, dtype=torch.bool)
        self._final: list[tuple[int, np.ndarray, np.ndarray]] = []  # step, environments, what their episodes ended on

        self._prepare_act = acting(algo.actor, device, self._obs[0], algo.actor.noise(num))

        self._finished: list[tuple[float, int]] = []  # return and length of episodes since the last metrics
        self.env_seconds = 0.0
        self.restart(seed)

    def restart(self, seed: int) -> None:
        """Begin new episodes in all environments; those under way are not counted."""
        num = self.env.num_envs
        self._obs[-1] = torch.as_tensor(self.env.reset(seed))
        self._episode_return = np.zeros(num)
        self._episode_length = np.zeros(num, dtype=np.int64)
        self._cut = np.full(num, self.env.stagger > 0)  # the first episodes, which may be cut short, are not counted
        self.reward_transform.restart()

    @torch.no_grad()
    def collect(self, step: int) -> Rollout:
        """The next T steps of all environments; ``step`` is the first one's number, for messages.

        Raises:
            NotFiniteError: an observation or reward is not.
            UserError: an environment failed.
        """
        decisions: list[Any] = []  # action, sample and policy of each step, as arrays or as tensors
        try:
            self._play(decisions)
        finally:  # a bad number is the reason for what an environment says of the action that came of it
            self._check_finite(step, len(decisions))
        self._count_episodes()
        ended = (self._terminated | self._truncated).numpy()
        reward = torch.as_tensor(self.reward_transform(self._reward.numpy(), ended), dtype=torch.float32)
        _, samples, policies = zip(*decisions, strict=True)
        return self._rollout(stack(samples), stack(policies), reward)

    def _play(self, decisions: list[Any]) -> None:
        self._obs[0] = self._obs[-1]
        self._final = []
        noise, obs = self.algo.actor.noise(self.algo.horizon, self.env.num_envs), self._obs.numpy()
        rewards, terminated, truncated = (x.numpy() for x in (self._reward, self._terminated, self._truncated))
        act, noises = self._prepare_act(), [*(noise.numpy() if noise.device.type == "cpu" else noise)]
        for t in range(self.algo.horizon):
            decision = act(obs[t], noises[t])
            began = time.perf_counter()
            outcome = self.env.step(decision[0])
            self.env_seconds += time.perf_counter() - began
            decisions.append(decision)
            rewards[t], terminated[t], truncated[t] = outcome.reward, outcome.terminated, outcome.truncated
            obs[t + 1] = outcome.obs
            if outcome.final_obs is not outcome.obs:
                ended = (outcome.terminated | outcome.truncated).nonzero()[0]
                self._final.append((t, ended, outcome.final_obs[ended]))

    def metrics(self) -> dict[str, float]:
        """Mean raw return and length of the episodes that ended since the last call; NaN where none did."""
        returns, lengths = zip(*self._finished, strict=True) if self._finished else ([np.nan], [np.nan])
        self._finished = []
        return {"train/episode_return": float(np.mean(returns)), "train/episode_length": float(np.mean(lengths))}

    def seen(self) -> dict[str, Tensor]:
        """What there is of the rollout under way: obs [T + 1, N, ...], reward, terminated and truncated [T, N]."""
        return {
            "obs": self._obs, "reward": self._reward, "terminated": self._terminated, "truncated": self._truncated,
        }  # fmt: skip

    def state_dict(self) -> State:
        """The environments, the reward's scale, and the episodes under way."""
        return {
            "env": self.env.state_dict(),
            "reward_transform": self.reward_transform.state_dict(),
            "obs": self._obs[-1].clone(),
            "episode_return": torch.from_numpy(self._episode_return.copy()),
            "episode_length": torch.from_numpy(self._episode_length.copy()),
            "cut": torch.from_numpy(self._cut.copy()),
            "finished": list(self._finished),
        }

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        self.env.load_state_dict(state["env"])
        self.reward_transform.load_state_dict(state["reward_transform"])
        self._obs[-1] = state["obs"]
        self._episode_return = state["episode_return"].numpy().copy()
        self._episode_length = state["episode_length"].numpy().copy()
        self._cut = state["cut"].numpy().copy()
        self._finished = list(state["finished"])

    def _rollout(self, sample: Tensor, policy: Tensor, reward: Tensor) -> Rollout:
        obs, network = self._obs.to(self.device, copy=True), self.algo.network
        terminated, truncated = self._terminated.to(self.device, copy=True), self._truncated.to(self.device, copy=True)
        values = network.value(obs)
        # What followed is the next row's observation, but for episodes that were cut. A terminated episode's next
        # value is never used.
        next_value = values[1:].clone()
        if self._final:
            steps = np.concatenate([np.full(len(envs), t) for t, envs, _ in self._final])
            envs = np.concatenate([envs for _, envs, _ in self._final])
            final_obs = torch.from_numpy(np.concatenate([obs for *_, obs in self._final])).to(self.device)
            next_value[steps, envs] = network.value(final_obs)
        return Rollout(
            obs=obs[:-1],
            action=sample,
            reward=reward.to(self.device, copy=True),
            terminated=terminated,
            truncated=truncated,
            log_prob=network.distribution(policy).log_prob(sample),
            value=values[:-1],
            next_value=next_value,
            policy=policy,
        )

    def _count_episodes(self) -> None:
        """Sum up the rewards of the rollout, [T, N], by episode."""
        ended = self._terminated.numpy() | self._truncated.numpy()
        total = self._episode_return + self._reward.numpy().cumsum(0, dtype=np.float64)
        length = self._episode_length + np.arange(1, len(ended) + 1)[:, None]
        for t, i in np.argwhere(ended):  # in the order of time
            if not self._cut[i]:
                self._finished.append((float(total[t, i]), int(length[t, i])))
            self._cut[i] = False
            total[t + 1 :, i] -= total[t, i]
            length[t + 1 :, i] -= length[t, i]
            total[t, i] = length[t, i] = 0
        self._episode_return, self._episode_length = total[-1].copy(), length[-1].copy()

    def _check_finite(self, step: int, steps: int) -> None:
        """Refuse what is not finite among the first ``steps`` steps of the rollout."""
        everything = [self._obs[: steps + 1], self._reward[:steps], *(torch.as_tensor(obs) for *_, obs in self._final)]
        if all(torch.isfinite(tensor.sum()) for tensor in everything):
            return
        self._refuse("first observation", self._obs[0].numpy(), step)
        final = {t: (envs, obs) for t, envs, obs in self._final}
        for t in range(steps):
            reward, first = self._reward[t].numpy(), self._obs[t + 1].numpy()
            last = first.copy()
            if t in final:
                last[final[t][0]] = final[t][1]
            for name, array in {"observation": last, "reward": reward, "first observation": first}.items():
                self._refuse(name, array, step + t * self.env.num_envs)

    @staticmethod
    def _refuse(name: str, array: np.ndarray, step: int) -> None:
        for bad in np.argwhere(~np.isfinite(array)):
            raise NotFiniteError(
                f"{name} of environment {bad[0]} is {array[tuple(bad)]} at step {step}: the environment is at fault, or an "
                "action it cannot bear"
            )


def stack(parts: tuple[Any, ...]) -> Tensor:
    """[T, ...] of T arrays or tensors."""
    return torch.stack(parts) if isinstance(parts[0], Tensor) else torch.from_numpy(np.stack(parts))
