"""Optuna as a sweeper: it proposes values, the launcher runs them. Hydra's own plugin for it stops at Optuna 2."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from minerva.errors import UserError
from minerva.sweeps.launcher import report, say
from minerva.sweeps.plugin import SweepLauncher


class OptunaSweeper(Sweeper):
    """Looks for the values of the highest score.

    What it learned is in ``optuna.journal`` in the sweep's directory. The same command again, or ``scripts/resume.py``, goes on until there are
    ``n_trials`` in all; a trial that was cut off is finished first, from its checkpoint.

    Args:
        n_trials: in all, those that failed among them.
        batch: trials at once; the next are proposed when all of them are through.
        seed: of the proposals.
        params: by key, what may be chosen: ``interval(1e-4, 1e-3)``, ``tag(log, interval(...))``, ``int(interval(...))``,
            ``range(1, 9)``, ``choice(a, b)``; the command line may have more.
    """

    def __init__(self, n_trials: int, batch: int, seed: int, params: dict[str, str] | None) -> None:
        self.n_trials, self.batch, self.seed, self.params = n_trials, batch, seed, params or {}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra gives."""
        from hydra.core.plugins import Plugins

        self.config, self.context = config, hydra_context
        self.launcher: Any = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run what is missing to ``n_trials``; the best trial's values and score.

        Raises:
            UserError: Optuna is not installed; a value is not allowed; or all trials failed.
        """
        assert self.config is not None
        try:
            import optuna
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend
        except ImportError as error:
            raise UserError(f"hydra/sweeper=optuna: {error}; pip install 'minerva[optuna]'") from error
        for key, value in (("n_trials", self.n_trials), ("batch", self.batch)):
            if value < 1:
                raise UserError(f"hydra.sweeper.{key}={value}: allowed is at least 1")
        if not self.config.hydra.launcher.get("wait", True):
            raise UserError(
                "hydra.launcher.wait=false: allowed is true with hydra/sweeper=optuna, which learns from each score"
            )
        fixed, space = self._space(arguments)
        folder = Path(str(self.config.hydra.sweep.dir)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = JournalStorage(JournalFileBackend(str(folder / "optuna.journal")))
        study = optuna.create_study(study_name="sweep", storage=storage, direction="maximize", load_if_exists=True)
        study.sampler = optuna.samplers.TPESampler(seed=self.seed + len(study.trials))
        running = [trial.number for trial in study.trials if trial.state == optuna.trial.TrialState.RUNNING]
        open_ = [optuna.trial.Trial(study, study.trials[number]._trial_id) for number in running]
        while True:
            ended = [trial for trial in study.trials if trial.state.is_finished()]
            missing = self.n_trials - len(ended) - len(open_)
            open_ += [study.ask() for _ in range(min(self.batch - len(open_), missing))]
            if not open_:
                break
            now, open_ = open_[: self.batch], open_[self.batch :]
            jobs = [
                [*fixed, *(f"{key}={_suggest(trial, key, choice)}" for key, choice in space.items())] for trial in now
            ]
            for trial, result in zip(now, self.launcher.launch(jobs, initial_job_idx=now[0].number), strict=True):
                score = result._return_value if isinstance(result._return_value, float) else math.nan
                if math.isnan(score):
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, score)
            say(f"{sum(trial.state.is_finished() for trial in study.trials)}/{self.n_trials} trials")
        if isinstance(self.launcher, SweepLauncher):
            report(self.launcher.folder, self.launcher.folder.states())
        done = study.get_trials(states=[optuna.trial.TrialState.COMPLETE])
        if not done:
            raise UserError(f"{folder}: all {self.n_trials} trials failed, as the table says")
        best = {"score": study.best_value, **study.best_params}
        say(
            "best:  "
            + " ".join(f"{key}={value}" for key, value in study.best_params.items())
            + f"  score {study.best_value:.1f}"
        )
        OmegaConf.save(OmegaConf.create({"best": best}), folder / "best.yaml")
        return best

    def _space(self, arguments: Sequence[str]) -> tuple[list[str], dict[str, Override]]:
        """What is the same for all trials, and what is chosen."""
        parser = OverridesParser.create(config_loader=self.context.config_loader)
        texts = [*(f"{key}={value}" for key, value in self.params.items()), *arguments]
        overrides = {override.get_key_element(): override for override in parser.parse_overrides(texts)}
        space = {key: override for key, override in overrides.items() if override.is_sweep_override()}
        if not space:
            raise UserError(
                "hydra.sweeper.params={}: allowed is at least one key with an interval(), range() or choice()"
            )
        fixed = [override.input_line for key, override in overrides.items() if key not in space]
        return [str(text) for text in fixed], space


def _suggest(trial: Any, key: str, override: Override) -> Any:
    value = override.value()
    log = "log" in getattr(value, "tags", ())
    if isinstance(value, IntervalSweep):
        if isinstance(value.start, int) and isinstance(value.end, int):
            return trial.suggest_int(key, value.start, value.end, log=log)
        return trial.suggest_float(key, value.start, value.end, log=log)
    if isinstance(value, RangeSweep):
        return trial.suggest_categorical(key, [*value.range()])
    assert isinstance(value, ChoiceSweep)
    texts = override.sweep_string_iterator()
    choices = [
        item if isinstance(item, int | float) else str(text) for item, text in zip(value.list, texts, strict=True)
    ]
    return trial.suggest_categorical(key, choices)
