"""The training loop."""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from minerva.checkpoint import Checkpoints
from minerva.collector import Collector
from minerva.errors import NotFiniteError, UserError
from minerva.evaluator import SCORES, Evaluator
from minerva.seeding import RandomState, derive
from minerva.signals import Signals, Stopped
from minerva.types import Algorithm, Logger, Rollout, State, Stateful

log = logging.getLogger(__name__)


class Trainer:
    """Collect, learn, and now and then log, evaluate and save, until the steps are done.

    Beginning in a directory that holds a checkpoint is going on from there. How often something is done is given as the
    number of times in a run, so that it fits short and long runs alike.

    Args:
        total_steps: environment steps of the run, over all environments; whole rollouts that fit in are done.
        logs, evaluations, checkpoints: how many times each is done, at most once a rollout.
        eval_episodes: episodes of an evaluation.
        final_eval_episodes: episodes of the last one, whose mean is the run's score.
        video: whether each evaluation is shown in a video, in ``videos/``.
        max_eval_steps: where an episode of an evaluation is cut.
        non_finite: what is done about a rollout with an observation or a reward that is not finite, or that gives a loss or a parameter that is
            not: ``"stop"``; or ``"skip"`` to learn nothing from it, begin new episodes if the environments gave it, count it and go on.
        algo: what learns.
        collector: gives it rollouts.
        evaluator: scores it.
        record: writes a video of what an actor does to a path; not used without ``video``.
        loggers: makes the loggers, given the steps to begin and to end at.
        run_dir: where the checkpoints go.
        identity: what must be the same for a run to go on from a checkpoint; plain values by key.
    """

    def __init__(
        self,
        *,
        total_steps: int,
        logs: int,
        evaluations: int,
        checkpoints: int,
        non_finite: str,
        eval_episodes: int,
        final_eval_episodes: int,
        video: bool,
        max_eval_steps: int,
        algo: Algorithm,
        collector: Collector,
        evaluator: Evaluator,
        record: Callable[[Any, Path], float] | None,
        loggers: Callable[[int, int], Logger],
        run_dir: Path,
        identity: dict[str, Any],
    ) -> None:
        self.algo, self.collector, self.evaluator, self.loggers = algo, collector, evaluator, loggers
        self.rollout_steps = algo.horizon * collector.env.num_envs
        self.total_steps = total_steps // self.rollout_steps * self.rollout_steps
        self.logs, self.evaluations, self.checkpoint_count = logs, evaluations, checkpoints
        self.eval_episodes, self.final_eval_episodes = eval_episodes, final_eval_episodes
        self.max_eval_steps, self.non_finite = max_eval_steps, non_finite
        self.record, self.videos = record if video else None, run_dir / "videos"
        self.checkpoints = Checkpoints(run_dir / "checkpoints")
        self.identity = identity
        self.clock = Clock()
        self.stateful: dict[str, Stateful] = {
            "algo": algo,
            "collector": collector,
            "clock": self.clock,
            "random": RandomState(collector.device),
        }

    def fit(self) -> float:
        """Train to the end. Returns the mean return of the last evaluation.

        Raises:
            Stopped: a signal asked for it; ``last.pt`` is of the step it stopped at.
            UserError: the checkpoint is of another run; or an environment failed or gave something that is not finite
                (what was learned until then is saved as ``failed.pt``, ``last.pt`` stays the last that can be gone on
                from); or a loss or a parameter is not finite; or something cannot be written.
        """
        clock = self.clock
        with Signals() as signals:
            if self.checkpoints.restore(self.identity, **self.stateful):
                log.info("going on at step %s of %s", f"{clock.step:,}", f"{self.total_steps:,}")
            logger = self.loggers(clock.step, self.total_steps)
            try:
                while clock.step < self.total_steps and not signals.received:
                    self._iterate(logger)
                if clock.step < self.total_steps and signals.received:
                    self._save_last(logger)
                    raise Stopped(signals.received)
            finally:
                logger.close()
        return clock.score

    def _iterate(self, logger: Logger) -> None:
        clock, started = self.clock, time.perf_counter()
        rollout = self._collect()
        collected = time.perf_counter()
        clock.env_seconds += self.collector.env_seconds
        self.collector.env_seconds = 0.0
        metrics = self._update(rollout) if rollout else {}
        updated = time.perf_counter()
        clock.step += self.rollout_steps
        clock.rollout_seconds += collected - started
        clock.update_seconds += updated - collected

        # The first row has all columns of metrics.csv, so it is one with an update and an evaluation.
        first, last = clock.score == -math.inf, clock.step >= self.total_steps
        evaluate = last or (rollout is not None and (first or self._due(self.evaluations)))
        if evaluate:
            metrics |= self._evaluate(self.final_eval_episodes if last else self.eval_episodes)
            if self.record:
                self._record(self.videos / f"{clock.step}.mp4", logger)
            clock.eval_seconds += time.perf_counter() - updated
            clock.score = metrics["eval/return_mean"]
        if evaluate or (rollout is not None and self._due(self.logs)):
            logger.log(self.collector.metrics() | metrics | clock.metrics(), clock.step)
        saving = time.perf_counter()
        if evaluate and clock.score > clock.best:
            clock.best = clock.score
            self._save("best")
        if last or self._due(self.checkpoint_count):
            self._save_last(logger)
        clock.save_seconds += time.perf_counter() - saving

    def _due(self, times: int) -> bool:
        """Whether one of ``times`` equal parts of the run ended with the rollout just done."""
        step, total = self.clock.step, self.total_steps
        return step * times // total > (step - self.rollout_steps) * times // total

    def _save_last(self, logger: Logger) -> None:
        logger.flush()  # first: rows before a checkpoint are not made again
        self._save("last")

    def _save(self, name: str) -> None:
        facts = {"step": self.clock.step, "identity": self.identity}
        self.checkpoints.save(name=name, facts=facts, **self.stateful)

    def _collect(self) -> Rollout | None:
        """The next rollout; None if it has something that is not finite, and is to be skipped."""
        step = self.clock.step
        try:
            return self.collector.collect(step)
        except UserError as error:
            self._save_batch(str(error), self.collector.seen())
            if self.non_finite == "stop" or not isinstance(error, NotFiniteError):
                raise self._failed(error) from error
            self._skip(str(error))
        try:
            self.collector.restart(derive(self.collector.seed, step))
        except UserError as error:
            raise self._failed(error) from error
        return None

    def _evaluate(self, episodes: int) -> dict[str, float]:
        try:
            return self.evaluator(self.algo, episodes, self.max_eval_steps)
        except UserError as error:
            if self.non_finite == "stop" or not isinstance(error, NotFiniteError):
                raise self._failed(error) from error
            log.warning("%s: there is no score at step %s", error, self.clock.step)
            return dict.fromkeys(SCORES, math.nan)

    def _record(self, path: Path, logger: Logger) -> None:
        assert self.record
        try:
            self.record(self.algo.actor, path)
            logger.video(path, self.clock.step)
        except Exception as error:  # of an encoder, a disk, an environment: training goes on without it
            log.warning("no %s: %s", path.name, " ".join(f"{type(error).__name__}: {error}".split()))

    def _failed(self, error: UserError) -> UserError:
        """Keep what was learned, and say where."""
        self._save("failed")
        return UserError(f"{error}; what was learned until step {self.clock.step} is in checkpoints/failed.pt")

    def _update(self, rollout: Rollout) -> dict[str, float]:
        """Learn from ``rollout``, unless what comes of it is not finite."""
        step = self.clock.step
        kept = copy.deepcopy(self.algo.state_dict()) if self.non_finite == "skip" else None
        metrics = self.algo.update(rollout, progress=step / self.total_steps)
        if quantity := self._not_finite(metrics):
            what = f"{quantity} is not finite, in the update after step {step + self.rollout_steps}"
            self._save_batch(what, {field.name: getattr(rollout, field.name) for field in fields(rollout)})
            if kept is None:
                raise UserError(
                    f"{what}: learning diverged, try a smaller learning rate, or trainer.non_finite=skip; its rollout is in "
                    "checkpoints/failed_batch.pt, and the last checkpoint is from before"
                )
            self.algo.load_state_dict(kept)
            self._skip(what)
        return metrics

    def _skip(self, what: str) -> None:
        self.clock.skipped += 1
        log.warning("%s: nothing is learned from this rollout (%s so far)", what, self.clock.skipped)

    def _not_finite(self, metrics: dict[str, float]) -> str | None:
        """The first of the losses or, for that is where a gradient goes, of the parameters that is not finite."""
        for name, value in metrics.items():
            # The explained variance of constant returns is not a number, and no harm.
            if name.startswith("loss") and name != "losses/explained_variance" and not math.isfinite(value):
                return name
        for name, parameter in self.algo.network.named_parameters():
            if not torch.isfinite(parameter.sum()):  # infinite too where the sum alone is: no network has such weights
                return f"the gradient of {name}"
        return None

    def _save_batch(self, reason: str, batch: dict[str, Any]) -> None:
        """Keep what led to trouble, for a look: ``torch.load("failed_batch.pt")["batch"]``."""
        facts = {"step": self.clock.step, "identity": self.identity, "reason": reason, "batch": batch}
        self.checkpoints.save(name="failed_batch", facts=facts)


class Clock:
    """How far a run is, and how long it took, over all the times it was resumed.

    Attributes:
        step: environment steps done.
        skipped: rollouts that nothing was learned from.
        score: mean return of the latest evaluation.
        best: the highest score so far.
        env_seconds, rollout_seconds, update_seconds, eval_seconds, save_seconds: time spent on each; the first is a part of the
            second.
    """

    def __init__(self) -> None:
        self.step = self.skipped = 0
        self.score, self.best = -torch.inf, -torch.inf
        self.env_seconds = self.rollout_seconds = self.update_seconds = self.eval_seconds = self.save_seconds = 0.0

    def metrics(self) -> dict[str, float]:
        """Skipped updates; speed, in steps a second of training without evaluation; and seconds spent."""
        return {
            "charts/skipped_updates": float(self.skipped),
            "charts/SPS": self.step / (self.rollout_seconds + self.update_seconds),
            "time/env": self.env_seconds,
            "time/rollout": self.rollout_seconds,
            "time/update": self.update_seconds,
            "time/eval": self.eval_seconds,
            "time/save": self.save_seconds,
        }

    def state_dict(self) -> State:
        """All of it."""
        return dict(vars(self))

    def load_state_dict(self, state: State) -> None:
        """Go on where ``state`` was taken."""
        vars(self).update(state)
