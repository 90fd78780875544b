"""Whether EnvPool's environments are those of dm_control and gymnasium: equal states and actions, played in both.

EnvPool tells no state, so the one its episode began with is found by least squares: the state whose first observations, here,
are those that EnvPool gave. Then the same random actions are played in both to the episode's end. Where they part, a third
episode, begun 1e-9 beside the second, says whether chaos alone explains it. Where no state can be found, the returns and
lengths of random policies are compared.

    python scripts/compare_backends.py                                   # all, in about half an hour
    python scripts/compare_backends.py dm_control/hopper-hop-v0          # some
    python scripts/compare_backends.py --write                           # all, into what `env.backend=auto` reads
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path
from typing import Any

import envpool
import gymnasium
import numpy as np
import yaml
from scipy.optimize import least_squares
from scipy.stats import mannwhitneyu

from minerva.envs.envpool import EnvPoolVectorEnv, task
from minerva.envs.gymnasium import GymnasiumVectorEnv
from minerva.errors import UserError
from minerva.fidelity import TABLE

CONF = Path(__file__).parent.parent / "conf" / "env"
STEPS = 1000
TOLERANCE = 1e-6  # relative to each observation's size; EnvPool's rewards are float32
NUDGE = 1e-9
KNOWN = (1, 4, 16)  # observations that a state is fitted to; the first does not tell which way one stands, or how high
STARTS, SECONDS = 12, 30  # of the least squares, at most
EPISODES, TRIES = 3, 8  # to be proven equal; at most so many are tried, for not every one's state is found
# What a task draws besides positions and velocities, and shows: the array of the model, its row, its columns.
HIDDEN = {
    "reacher": [("geom_pos", "target", [0, 1])],
    "swimmer": [("geom_pos", "target", [0, 1])],
    "fish": [("geom_pos", "target", [0, 1, 2])],
    "stacker": [("body_pos", "target", [0, 2])],
    "manipulator": [],
    "finger": [("site_pos", "target", [0, 2])],
}


class DMControl:
    """A task of dm_control whose state can be set."""

    def __init__(self, id: str) -> None:
        self.id, self.env = id, gymnasium.make(id, disable_env_checker=True).unwrapped._env
        self.physics, self.task = self.env.physics, self.env.task
        domain = id.split("/")[1].split("-")[0]
        named = self.physics.named.model
        try:
            self.hidden = [(getattr(named, array), row, columns) for array, row, columns in HIDDEN.get(domain, [])]
            [array[row] for array, row, _ in self.hidden]
        except KeyError:
            self.hidden = []  # swim has a target, upright has none
        self.size = 2 * self.physics.model.nv + sum(len(columns) for _, _, columns in self.hidden)
        self.env.reset()
        self.origin = self.physics.data.qpos.copy()

    def begin(self) -> np.ndarray:
        """The state [size] that an episode of its own begins with; positions are counted from ``origin``."""
        import mujoco

        self.env.reset()
        position = np.zeros(self.physics.model.nv)
        mujoco.mj_differentiatePos(self.physics.model.ptr, position, 1.0, self.origin, self.physics.data.qpos)
        targets = [array[row][columns] for array, row, columns in self.hidden]
        return np.concatenate([position, self.physics.data.qvel, *targets])

    def elsewhere(self, x: np.ndarray) -> list[np.ndarray]:
        """States that look like ``x`` and may not be it: a quadruped begins at a multiple of 1 cm above the floor, unseen."""
        if "quadruped" not in self.id:
            return [x]
        return [np.concatenate([x[:2], [0.01 * step - self.origin[2]], x[3:]]) for step in range(150)]

    def set(self, x: np.ndarray) -> np.ndarray:
        """Go to state ``x``; returns the observation."""
        import mujoco

        nv = self.physics.model.nv
        qpos = self.origin.copy()
        mujoco.mj_integratePos(self.physics.model.ptr, qpos, x[:nv], 1.0)
        with self.physics.reset_context():
            self.physics.data.qpos[:], self.physics.data.qvel[:] = qpos, x[nv : 2 * nv]
            at = 2 * nv
            for array, row, columns in self.hidden:
                array[row, columns] = x[at : at + len(columns)]
                at += len(columns)
        return self.observe()

    def observe(self) -> np.ndarray:
        obs = self.task.get_observation(self.physics)
        return np.concatenate([np.ravel(obs[name]) for name in sorted(obs)]).astype(float)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        self.task.before_step(action, self.physics)
        self.physics.step(self.env._n_sub_steps)
        self.task.after_step(self.physics)
        reward = float(self.task.get_reward(self.physics))
        return self.observe(), reward, self.task.get_termination(self.physics) == 0


class MuJoCo:
    """A MuJoCo environment of gymnasium whose state can be set; quaternions need not be of length one there."""

    def __init__(self, id: str) -> None:
        self.env = gymnasium.make(id, disable_env_checker=True).unwrapped
        self.size = self.env.model.nq + self.env.model.nv

    def begin(self) -> np.ndarray:
        self.env.reset()
        return np.concatenate([self.env.data.qpos, self.env.data.qvel])

    def set(self, x: np.ndarray) -> np.ndarray:
        import mujoco

        mujoco.mj_resetData(self.env.model, self.env.data)
        self.env.set_state(x[: self.env.model.nq], x[self.env.model.nq :])
        return np.asarray(self.env._get_obs(), float)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        obs, reward, terminated, *_ = self.env.step(action)
        return np.asarray(obs, float), float(reward), bool(terminated)


class Classic:
    """A classic-control environment of gymnasium whose state can be set."""

    def __init__(self, id: str) -> None:
        self.env = gymnasium.make(id, disable_env_checker=True).unwrapped
        self.env.reset()
        self.size = len(self.env.state)

    def begin(self) -> np.ndarray:
        self.env.reset()
        return np.asarray(self.env.state, float)

    def set(self, x: np.ndarray) -> np.ndarray:
        self.env.reset()
        self.env.state = np.array(x)
        observe = getattr(self.env, "_get_obs", None) or getattr(self.env, "_get_ob", None)
        return np.asarray(observe() if observe else x, float)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool]:
        obs, reward, terminated, *_ = self.env.step(action)
        return np.asarray(obs, float), float(reward), bool(terminated)


def make(id: str) -> DMControl | MuJoCo | Classic:
    if id.startswith("dm_control/"):
        return DMControl(id)
    return MuJoCo(id) if hasattr(gymnasium.make(id).unwrapped, "model") else Classic(id)


def play(here: Any, x: np.ndarray, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observations [T + 1, O], rewards [T] and whether each step terminated [T], of ``actions`` [T, A] from state ``x``."""
    obs, rewards, ends = [here.set(x)], [], []
    for action in actions:
        after, reward, terminated = here.step(action)
        obs.append(after)
        rewards.append(reward)
        ends.append(terminated)
    return np.array(obs), np.array(rewards), np.array(ends)


def episode(id: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """An episode of EnvPool: what :func:`play` returns, and its random actions [T, A]."""
    env = EnvPoolVectorEnv(id=id, num_envs=1, max_episode_steps=None, stagger=0, threads=1)
    pool = envpool.make_gymnasium(task(id), num_envs=1, seed=seed)
    names = env.names

    def flat(obs: Any) -> np.ndarray:
        obs = obs if isinstance(obs, dict) else dict.fromkeys(names, obs)
        return np.concatenate([np.ravel(obs[name]) for name in names]).astype(float)

    space = env.spec.action
    space.seed(seed)
    bounded = not hasattr(space, "low") or np.isfinite(space.low).all()
    sample = space.sample if bounded else lambda: np.clip(space.sample(), -1, 1)
    obs, rewards, ends, actions = [flat(pool.reset()[0])], [], [], []
    for _ in range(STEPS):
        actions.append(sample())
        after, reward, done, cut, _ = pool.step(np.asarray(actions[-1])[None])
        obs.append(flat(after))
        rewards.append(float(reward[0]))
        ends.append(bool(done[0]))
        if done[0] or cut[0]:
            break
    return np.array(obs), np.array(rewards), np.array(ends), np.array(actions)


def find_state(
    here: Any, obs: np.ndarray, actions: np.ndarray, size: np.ndarray, known: int, near: np.ndarray | None
) -> np.ndarray | None:
    """The state whose first ``known`` observations are those of ``obs`` [T, O]; None if there is none to be found, ``near`` or elsewhere."""

    def residual(x: np.ndarray) -> np.ndarray:
        return ((play(here, x, actions[: known - 1])[0] - obs[:known]) / size).ravel()

    best, began = None, time.monotonic()
    for start in range(STARTS):
        if time.monotonic() - began > SECONDS:
            break
        x = near if near is not None and start == 0 else here.begin()
        try:
            found = least_squares(residual, x, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=60)
        except Exception:  # a state that the simulator cannot bear
            continue
        if best is None or found.cost < best.cost:
            best = found
        if best.cost < 1e-16:
            break
    return best.x if best is not None and best.cost < 1e-9 else None


def far(here: Any, x: np.ndarray, obs: np.ndarray, actions: np.ndarray, size: np.ndarray) -> float:
    """How far an episode from ``x`` and that of ``obs`` are apart, in all of their first steps."""
    try:
        mine = play(here, x, actions[:20])[0]
    except Exception:  # a state that the simulator cannot bear
        return float("inf")
    return float((np.abs(mine - obs[:21]) / size).clip(max=1).sum())


def replay(id: str, seed: int) -> dict[str, Any] | None:
    """Compare one episode; None where the state that it began with is not found. ``parted`` is how far, if it parted."""
    here = make(id)
    obs, rewards, ends, actions = episode(id, seed)
    size = np.abs(obs).max(0).clip(1.0)
    parted = near = None
    for known in KNOWN:
        x = find_state(here, obs, actions, size, known, near)
        if x is None:
            continue
        if isinstance(here, DMControl):
            x = min(here.elsewhere(x), key=lambda x: far(here, x, obs, actions, size))
        near = x
        mine, my_rewards, my_ends = play(here, x, actions)
        nudged, nudged_rewards, _ = play(here, x + NUDGE * np.random.default_rng(0).standard_normal(len(x)), actions)
        reward_size = max(1.0, np.abs(rewards).max())
        error = np.maximum(
            (np.abs(mine[1:] - obs[1:]) / size).max(1), np.abs(my_rewards - rewards)[: len(rewards)] / reward_size
        )
        chaos = np.maximum(
            (np.abs(mine[1:] - nudged[1:]) / size).max(1), np.abs(my_rewards - nudged_rewards) / reward_size
        )
        allowed = np.maximum(TOLERANCE, 100 * np.maximum.accumulate(chaos))
        error[(ends != my_ends) & (np.maximum.accumulate(chaos) < 1e-3)] = np.inf  # one is over, and not by chaos
        apart = np.flatnonzero(error > TOLERANCE)
        same = int(apart[0]) if len(apart) else len(error)
        print(
            f"    known {known}: start {np.abs(mine[0] - obs[0]).max():.0e}, error {error[0]:.0e} after 1, "
            f"{error[:20].max():.0e} in 20, {error.max():.0e} in {len(error)}; equal for {same}; "
            f"nudged {chaos[:20].max():.0e}, {chaos.max():.0e}",
            file=sys.stderr,
        )
        if same >= min(20, len(error)) and (error <= allowed).all():
            return {"steps": len(error), "equal_steps": same, "error": float(error[:same].max()), "parted": 0.0}
        if same >= 5 or known == KNOWN[-1]:
            parted = {"steps": len(error), "equal_steps": same, "error": 0.0, "parted": float(error.max())}
    return parted


def returns(env: Any, episodes: int) -> np.ndarray:
    """Returns of random policies in a :class:`minerva.types.VectorEnv`; none, if its episodes do not end."""
    env.reset(0)
    rng, space = np.random.default_rng(0), env.spec.action
    total, finished = np.zeros(env.num_envs), []
    for steps in itertools.count():
        if len(finished) >= episodes or (steps > STEPS and not finished):
            break
        step = env.step(draw(rng, space, env.num_envs))
        total += step.reward
        for i in np.flatnonzero(step.terminated | step.truncated):
            finished.append(total[i])
            total[i] = 0
    return np.array(finished)


def step_us(env: Any) -> int:
    """Microseconds that a step of one of ``env`` takes, with random actions."""
    env.reset(0)
    rng, space, times = np.random.default_rng(0), env.spec.action, []
    for _ in range(300):
        action = draw(rng, space, env.num_envs)
        began = time.perf_counter()
        env.step(action)
        times.append(time.perf_counter() - began)
    return round(1e6 * float(np.quantile(times, 0.1)) / env.num_envs)  # undisturbed


def draw(rng: np.random.Generator, space: Any, num_envs: int) -> np.ndarray:
    """Random actions, of unbounded ones those from -1 to 1."""
    if hasattr(space, "n"):
        return rng.integers(space.n, size=num_envs)
    return rng.uniform(space.low.clip(-1), space.high.clip(None, 1), (num_envs, *space.shape)).astype(np.float32)


def compare(id: str, episodes: int) -> dict[str, Any]:
    values = {"id": id, "num_envs": 4, "max_episode_steps": None, "stagger": 0}
    theirs = EnvPoolVectorEnv(**values, threads=2)
    ours = GymnasiumVectorEnv(**values, kwargs={})
    if theirs.spec != ours.spec:
        return {"verdict": "different", "why": f"{theirs.spec} is not {ours.spec}"}
    found: list[dict[str, Any]] = []
    why, lost = "the states that its episodes began with were not found", 0
    for seed in range(1, TRIES + 1):
        if (replayed := replay(id, seed)) is None:
            lost += 1
            if lost > len(found) + 1:  # more often than not, no state is found: what is proven is not the task
                break
            continue
        if replayed["parted"]:
            why = f"it parts from the original after {replayed['equal_steps']} equal steps, by {replayed['parted']:.1g} at most"
            break
        found.append(replayed)
        if len(found) < EPISODES or lost > len(found):
            continue
        steps, equal = (sum(part[key] for part in found) for key in ("steps", "equal_steps"))
        return {
            "verdict": "identical",
            "steps": steps,
            "equal_steps": equal,
            "not_found": lost,
            "error": max(part["error"] for part in found),
            "step_us": step_us(ours),
        }
    a, b = returns(theirs, episodes), returns(ours, episodes)
    if not len(a) or not len(b):
        return {
            "verdict": "different",
            "why": f"its episodes end {'later' if len(b) else 'sooner'}: one's within {STEPS} steps",
        }
    p = float(mannwhitneyu(a, b).pvalue)
    said = f"{why}; random-policy return {a.mean():.4g} ± {a.std():.2g}, of the original {b.mean():.4g} ± {b.std():.2g} (p = {p:.2g})"
    apart = bool(replayed and replayed["parted"] > 1e-3)
    return {"verdict": "different" if apart or p < 0.001 else "alike", "why": said}


def markdown(table: dict[str, dict[str, Any]]) -> str:
    """The verdicts as a table."""
    lines = ["| task | verdict | equal steps | largest error while equal | |", "|---|---|---|---|---|"]
    for id, found in sorted(table.items()):
        if found["verdict"] == "identical":
            apart = "" if found["equal_steps"] == found["steps"] else "then as far apart as chaos takes a nudge of 1e-9"
            lines.append(
                f"| {id} | identical | {found['equal_steps']} of {found['steps']} | {found['error']:.0e} | {apart} |"
            )
        else:
            lines.append(f"| {id} | **{found['verdict']}** | | | {found['why']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="gymnasium ids; none: all of conf/env that EnvPool has")
    parser.add_argument("--write", action="store_true", help=f"keep the verdicts, in {TABLE.name}")
    parser.add_argument("--episodes", type=int, default=40, help="of random policies, where states cannot be set")
    parser.add_argument(
        "--table", action="store_true", help="print the verdicts there are, as Markdown, and compare nothing"
    )
    args = parser.parse_args()
    if args.table:
        return print(markdown(json.loads(TABLE.read_text())))
    ids = args.ids or sorted(
        {yaml.safe_load(path.read_text()).get("id") for path in CONF.glob("**/*.yaml")} - {None, "???"}
    )
    table = json.loads(TABLE.read_text()) if TABLE.exists() else {}
    for number, id in enumerate(ids, 1):
        try:
            verdict = compare(id, args.episodes)
        except UserError as error:
            print(f"{number}/{len(ids)} {id}: {error}", file=sys.stderr)
            continue
        table[id] = verdict
        print(f"{number}/{len(ids)} {id}: {json.dumps(verdict)}", flush=True)
        if args.write:  # after each, read anew: another may be writing too
            table = (json.loads(TABLE.read_text()) if TABLE.exists() else {}) | {id: verdict}
            TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
