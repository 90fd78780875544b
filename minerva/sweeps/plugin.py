"""What Hydra asks of a launcher and a sweeper. ``hydra_plugins/`` has their names, for it looks nowhere else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from minerva import config as configuration
from minerva.errors import UserError
from minerva.sweeps import launcher
from minerva.sweeps.compose import Composer
from minerva.sweeps.folder import Job, State, SweepFolder, job_name
from minerva.sweeps.words import quoted, split
from minerva.trust import typed

# Of the sweep, not of its jobs.
NOT_OF_A_JOB = re.compile(r"[+~]*(sweep_name|sweep|hydra[./](sweep|sweeper|launcher|mode|run)\b.*?)(=|$)")

DETACHED = "MINERVA_DETACHED"  # tells a launcher that it is the one that another has begun, and to wait


@dataclass
class LocalConf:
    """hydra/launcher=local, the default of -m."""

    _target_: str = "hydra_plugins.minerva_sweeps.LocalLauncher"
    n_jobs: int | None = None  # at once; null: as many as there are cores for their threads, or GPUs
    retry: str = "failed"  # what is run again: failed; none; or all, from the beginning
    wait: bool = True


@dataclass
class SlurmConf:
    """hydra/launcher=slurm: one array. The options are those of submitit's SlurmExecutor; null leaves it to SLURM."""

    _target_: str = "hydra_plugins.minerva_sweeps.SlurmLauncher"
    retry: str = "failed"
    wait: bool = True  # until all are through; false: submit and return
    timeout_min: int = 60  # a job that takes longer is begun again, and goes on
    signal_delay_s: int = 90  # before that, for the job to save
    array_parallelism: int = 256  # jobs at once
    cpus_per_task: int | None = 2
    gpus_per_node: int | None = None
    nodes: int = 1
    mem_gb: float | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    nodelist: str | None = None
    gres: str | None = None
    cpus_per_gpu: int | None = None
    gpus_per_task: int | None = None
    mem_per_gpu: str | None = None
    mem_per_cpu: str | None = None
    exclusive: bool | None = None
    dependency: str | None = None
    comment: str | None = None
    wckey: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    name: str = "minerva"
    setup: list[str] | None = None  # commands before the job
    teardown: list[str] | None = None
    srun_args: list[str] | None = None
    use_srun: bool = True
    stderr_to_stdout: bool = True
    additional_parameters: dict[str, Any] = field(default_factory=dict)  # any other of sbatch's, by its long name


@dataclass
class SweeperConf:
    """The default of -m: all combinations."""

    _target_: str = "hydra_plugins.minerva_sweeps.GridSweeper"
    max_batch_size: int | None = None
    params: dict[str, str] | None = None


@dataclass
class OptunaConf:
    """hydra/sweeper=optuna: looks for the values of the highest score."""

    _target_: str = "hydra_plugins.minerva_sweeps.OptunaSweeper"
    n_trials: int = 50  # in all; the same command again goes on towards it
    batch: int = 2  # at once
    seed: int = 0  # of what is proposed
    params: dict[str, str] | None = None  # key: interval(a, b), tag(log, interval(a, b)), range(a, b), choice(a, b)


def register() -> None:
    """Tell Hydra."""
    store = ConfigStore.instance()
    store.store(group="hydra/launcher", name="local", node=LocalConf, provider="minerva")
    store.store(group="hydra/launcher", name="slurm", node=SlurmConf, provider="minerva")
    store.store(group="hydra/sweeper", name="grid", node=SweeperConf, provider="minerva")
    store.store(group="hydra/sweeper", name="optuna", node=OptunaConf, provider="minerva")


class SweepLauncher(Launcher):
    """Launches jobs as runs of the same script, in directories of their own.

    Args:
        options: of its configuration.
    """

    kind = ""

    def __init__(self, retry: str, wait: bool, **options: Any) -> None:
        self.retry, self.wait, self.options = retry, wait, options

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Keep what Hydra gives.

        Raises:
            UserError: an option of the launcher has a value that is not allowed.
        """
        if self.retry not in ("failed", "none", "all"):
            raise UserError(f"hydra.launcher.retry={self.retry}: allowed is one of failed, none, all")
        if self.options.get("n_jobs") is not None and self.options["n_jobs"] < 1:
            raise UserError(f"hydra.launcher.n_jobs={self.options['n_jobs']}: allowed is at least 1")
        self.config, self.loader = config, hydra_context.config_loader
        self.folder = SweepFolder(Path(str(config.hydra.sweep.dir)).absolute())
        self.composer = Composer(self.loader, config)
        self._planned: dict[tuple[str, ...], Job] = {}
        self.states: dict[str, State] = {}

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run what is not finished of the jobs that are made of ``job_overrides``; their scores.

        Raises:
            UserError: a job's configuration is wrong, or not what it was.
        """
        jobs = self.plan(job_overrides)
        pool = self._pool(jobs)
        states = launcher.run(
            self.folder, jobs, pool, command=self._command(), kind=self.kind, retry=self.retry, wait=self.wait
        )  # fmt: skip
        if not self.wait:
            launcher.say(f"look:  {launcher.status(self.folder)}")
            return []
        self.states |= states
        returned = []
        for job, overrides in zip(jobs, job_overrides, strict=True):
            state = states[job.name]
            done = JobReturn(overrides=list(overrides), working_dir=str(self.folder.path / job.name))
            done.status = JobStatus.COMPLETED if state.status == "finished" else JobStatus.FAILED
            done.return_value = state.score if state.status == "finished" else UserError(f"{job.name}: {state.reason}")
            returned.append(done)
        return returned

    def report(self) -> list[str]:
        """Show what became of all jobs launched; returns the names of those that are not finished."""
        if self.wait:
            launcher.report(self.folder, self.states)
        return [name for name, state in self.states.items() if state.status != "finished"]

    def plan(self, job_overrides: Sequence[Sequence[str]]) -> list[Job]:
        """The jobs that are made of ``job_overrides``.

        Raises:
            UserError: one's configuration is wrong.
        """
        for overrides in job_overrides:
            if (key := tuple(overrides)) not in self._planned:
                self._planned[key] = self._job(key)
        return [self._planned[tuple(overrides)] for overrides in job_overrides]

    def _job(self, overrides: Sequence[str]) -> Job:
        composed = self.composer(overrides)
        configuration.check(composed, here=self.kind == "local")
        own = [text for text in overrides if not NOT_OF_A_JOB.match(text)]
        return Job(name=job_name(own), overrides=own, values=configuration.values(composed))

    def _run(self, job: Job) -> list[str]:
        """The command of a single run."""
        hydra = [text for text in self.config.hydra.overrides.hydra if not NOT_OF_A_JOB.match(text)]
        sweep = [text for text in self.config.hydra.overrides.task if re.match(r"\+*sweep=", text)]
        where = [f"hydra.run.dir={quoted(self.folder.path / job.name)}", "hydra.mode=RUN"]
        return [sys.executable, sys.argv[0], *split(typed())[0], *hydra, *sweep, *job.overrides, *where]

    def _command(self) -> list[str]:
        """What resumes the sweep."""
        once = r"(sweep_name|hydra\.sweep\.dir|hydra\.launcher\.retry)="
        options, overrides = split(typed())
        own = [text for text in overrides if not re.match(once, text)]
        return [str(Path(sys.argv[0]).absolute()), "-m", *options, *own, f"hydra.sweep.dir={quoted(self.folder.path)}"]

    def _pool(self, jobs: Sequence[Job]) -> launcher.Pool:
        raise NotImplementedError


class LocalLauncher(SweepLauncher):
    """Each job in a process of its own, so many at once.

    The jobs end with their launcher. So who does not wait gives them one that needs no terminal.
    """

    kind = "local"

    def __init__(self, wait: bool, **options: Any) -> None:
        super().__init__(wait=wait or bool(os.environ.pop(DETACHED, "")), **options)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run what is not finished, or have another process do it; the scores."""
        if self.wait:
            return super().launch(job_overrides, initial_job_idx)
        with self.folder.only_one():
            self.folder.begin(self._command(), self.kind, self.plan(job_overrides))
        log = self.folder.path / "launcher.log"
        with open(log, "ab") as file:
            process = subprocess.Popen(
                [sys.executable, *self._command(), f"hydra.launcher.retry={self.retry}"],
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ | {DETACHED: "1"}, start_new_session=True,
            )  # fmt: skip
        launcher.say(f"process {process.pid} runs the jobs; what it says is in {log}")
        launcher.say(f"have them save and end:  kill {process.pid}")
        launcher.say(f"look:  {launcher.status(self.folder)}")
        return []

    def _pool(self, jobs: Sequence[Job]) -> launcher.Pool:
        from minerva.sweeps.local import LocalPool

        threads = max((job.values["threads"] for job in jobs if job.values["threads"] != "auto"), default=None)
        cuda = any(job.values["device"] == "cuda" for job in jobs)  # with cuda:1 the user chose
        return LocalPool(self.folder, self._run, self.options["n_jobs"], threads, cuda)


class SlurmLauncher(SweepLauncher):
    """All jobs as one array of SLURM's."""

    kind = "slurm"

    def _pool(self, jobs: Sequence[Job]) -> launcher.Pool:
        from minerva.sweeps.slurm import SlurmPool

        if shutil.which("sbatch") is None:
            raise UserError(
                "hydra/launcher=slurm: there is no sbatch here; allowed is local, or a machine of a cluster"
            )
        given = {name: value for name, value in self.options.items() if value is not None}
        return SlurmPool(self.folder, self._run, given)


class GridSweeper(BasicSweeper):
    """All combinations; every job's configuration is looked at before the first runs, and before there is a directory."""

    def sweep(self, arguments: list[str]) -> Any:
        """Launch them; what the launcher returns.

        Raises:
            UserError: there are none; or a configuration is wrong; or jobs failed.
        """
        assert self.config is not None
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        texts = [*self._parse_config(), *arguments]
        jobs = self.split_arguments(OverridesParser.create(config_loader=loader).parse_overrides(texts), None)[0]
        if not jobs:
            raise UserError(f"{' '.join(texts)}: a sweep of no jobs; allowed is one value at least for each key")
        ours = self.launcher if isinstance(self.launcher, SweepLauncher) else None
        if ours:
            ours.plan(jobs)
        else:
            compose = Composer(loader, self.config)
            for job in jobs:
                configuration.check(compose(job))
        folder = Path(str(self.config.hydra.sweep.dir))
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        waits = ours is None or ours.wait
        size = self.max_batch_size if self.max_batch_size and waits else len(jobs)
        assert self.launcher is not None
        batches = [self.launcher.launch(jobs[i : i + size], initial_job_idx=i) for i in range(0, len(jobs), size)]
        if ours and (unfinished := ours.report()):
            raise UserError(
                f"{len(unfinished)} of {len(jobs)} jobs are not finished, as the table says; go on with:  "
                f"{launcher.resume(ours.folder)}"
            )
        for result in [] if ours else [result for batch in batches for result in batch]:
            _ = result.return_value  # raises, if it failed
        return batches
