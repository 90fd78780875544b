"""Run directories as data: what each was, what became of it, and its metrics."""

from __future__ import annotations

import difflib
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from minerva.errors import UserError
from minerva.sweeps.folder import MANIFEST, Job, State, SweepFolder

SAVED = Path(".hydra", "config.yaml")
SCORE = "eval/return_mean"
SECONDS = ("time/rollout", "time/update", "time/eval", "time/save")  # all that a run does
ASIDE = re.compile(r".*\.old\d+")  # what a sweep has put away, to begin it anew
# What decides nothing of what is learned, or is told apart in another way.
BESIDE = re.compile(
    r"seed|device|threads|sweep_name|compile|logger\..*|(algo|env|network|reward)\._target_"
    r"|env\.(id|backend|allow_different|threads|timeout)|trainer\.(?!total_steps|non_finite|max_eval_steps).*"
)

OTHERWISE = re.compile(r"seed|algo\._target_|env\.id")  # keys that are columns by another name


@dataclass(frozen=True)
class RunRecord:
    """A run directory, read.

    Attributes:
        path: the directory.
        status: ``finished``, ``running``, ``queued``, ``interrupted`` or ``failed``.
        reason: why it is not finished, in one line, where that is known.
        score: the mean return of its last policy, once it is finished.
        config: its configuration, as ``{"algo.gamma": 0.99, ...}``.
        facts: its ``run.json``.
    """

    path: Path
    status: str
    reason: str
    score: float | None
    config: Mapping[str, Any]
    facts: Mapping[str, Any]

    @property
    def algo(self) -> str:
        """The algorithm's class: ``PPO``."""
        return str(self.config.get("algo._target_", "?")).rpartition(".")[2]

    @property
    def env(self) -> str:
        """The environment's id, without its version: ``dm_control/cheetah-run``; as gymnasium has it elsewhere, where versions differ."""
        return re.sub(r"^(dm_control/.*)-v0$", r"\1", str(self.config.get("env.id", "?")))

    @property
    def seed(self) -> int:
        """What decides its chance; -1 where there is none."""
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else -1

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The rows of ``metrics.csv``; none, where there is none that can be read."""
        nothing = pd.DataFrame({"step": np.zeros(0, int)})
        try:
            whole = (
                (self.path / "metrics.csv").read_bytes().rpartition(b"\n")[0]
            )  # without a last row that was cut short
            rows = pd.read_csv(io.BytesIO(whole), on_bad_lines="skip", index_col=False)
            for name in rows.select_dtypes(exclude="number").columns:  # damaged
                rows[name] = pd.to_numeric(rows[name], errors="coerce")
            rows = rows[np.isfinite(rows["step"])]
        except (OSError, ValueError, KeyError):
            return nothing
        return rows.assign(step=rows["step"].astype(int)) if len(rows) else nothing


def load_runs(*paths: str | Path) -> pd.DataFrame:
    """The metrics of runs: a row for each row of a run's ``metrics.csv``.

    Args:
        paths: run directories, sweeps, or whatever has them within, at any depth.

    Returns:
        Columns ``run`` (its directory), ``status``, ``algo``, ``env``, ``seed``; each key of the configuration that is not the same for all
        of the runs, as ``algo.gamma`` or ``threads``; ``step``; and the metrics by their names, NaN where they were not measured. Runs
        without rows have none.

    Raises:
        UserError: there are no runs.
    """
    records = read_runs(*paths)
    about = pd.DataFrame(
        {
            "run": [str(record.path) for record in records],
            **{name: [getattr(record, name) for record in records] for name in ("status", "algo", "env", "seed")},
            **{key: [_plain(record.config.get(key)) for record in records] for key in differing(records, OTHERWISE)},
        }
    )
    for name in about.columns:
        if about[name].dtype == object or isinstance(about[name].dtype, pd.StringDtype):
            about[name] = about[name].astype("category")
    lengths = [len(record.metrics) for record in records]
    metrics = pd.concat([record.metrics for record in records], ignore_index=True)
    return pd.concat([about.iloc[np.repeat(np.arange(len(records)), lengths)].reset_index(drop=True), metrics], axis=1)


def read_runs(*paths: str | Path) -> list[RunRecord]:
    """The runs within ``paths``, by their directories' names; those of a sweep that have not begun too.

    Raises:
        UserError: there are none, or a path does not exist.
    """
    found: dict[Path, RunRecord] = {}
    for path in map(Path, paths):
        if not path.is_dir():
            raise UserError(f"{path}: allowed is a directory, of a run, of a sweep, or with such within")
        for record in _within(path):
            found.setdefault(record.path.resolve(), record)
    if not found:
        where = ", ".join(map(str, paths)) or "no path"
        raise UserError(f"{where}: there are no runs in it; python train.py makes some in outputs/")
    return [found[path] for path in sorted(found)]


def filtered(records: Sequence[RunRecord], filters: Sequence[str]) -> list[RunRecord]:
    """The runs whose configuration has all of the values of ``filters``, ``algo.gamma=0.99``; ``algo``, ``env`` and ``status`` are keys as well.

    Raises:
        UserError: a key that no run has, or nothing is left.
    """
    left = [*records]
    for text in filters:
        key, _, value = text.partition("=")
        own = {"algo": lambda r: r.algo.lower(), "env": lambda r: r.env, "status": lambda r: r.status}.get(key)
        known = sorted({"algo", "env", "status", *(name for record in records for name in record.config)})
        if key not in known:
            near = ", ".join(difflib.get_close_matches(key, known, n=3) or known[:3])
            raise UserError(f"{text}: no run has {key}; nearest: {near}")
        try:
            wanted = value.lower() if key == "algo" else value if own else _plain(yaml.load(value, _Loader))
        except yaml.YAMLError as error:
            raise UserError(f"{text}: cannot be read: {' '.join(str(error).split())}") from error
        having = [record for record in left if own or key in record.config]
        values = {str(record.path): own(record) if own else _plain(record.config[key]) for record in having}
        there = sorted({str(found) for found in values.values()})
        left = [record for record in having if _same(values[str(record.path)], wanted)]
        if not left:
            raise UserError(f"{text}: no run has it; allowed is one of {', '.join(there)}")
    return left


def differing(records: Iterable[RunRecord], but: re.Pattern[str] = BESIDE) -> list[str]:
    """The keys of the configuration that are not the same for all, in order; ``but`` those of what is not learned with."""
    values: dict[str, set[str]] = {}
    records = list(records)
    for key in sorted({key for record in records for key in record.config}):
        values[key] = {repr(record.config.get(key)) for record in records if _matters(key, record)} - {"'auto'"}
    return [key for key, several in values.items() if len(several) > 1 and not but.fullmatch(key)]


def _matters(key: str, record: RunRecord) -> bool:
    return key not in ("env.pixel_size", "env.camera") or record.config.get("env.pixels", True) is True


def _within(path: Path) -> Iterator[RunRecord]:
    """The runs at and below ``path``."""
    seen = set()
    for folder, names, files in os.walk(path, followlinks=True):
        here = Path(folder)
        if here.resolve() in seen:  # links may go round
            names.clear()
            continue
        seen.add(here.resolve())
        if (here / SAVED).is_file():
            names.clear()
            yield _read(here)
            continue
        names[:] = sorted(name for name in names if not name.startswith(".") and not ASIDE.fullmatch(name))
        if MANIFEST in files:
            yield from _not_begun(here)


def _not_begun(sweep: Path) -> Iterator[RunRecord]:
    folder = SweepFolder(sweep)
    try:
        jobs = folder.jobs()
    except (UserError, KeyError, TypeError):  # a damaged manifest: what has begun is there by itself
        return
    for job in jobs:
        if not (sweep / job.name / SAVED).is_file():
            state = folder.state(job)
            yield RunRecord(sweep / job.name, state.status, state.reason, None, dict(job.values), {})


def _read(path: Path) -> RunRecord:
    try:
        config = flat(yaml.load((path / SAVED).read_text(encoding="utf-8"), _Loader))
        reason = ""
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        config, reason = {}, f"{SAVED}: cannot be read: {' '.join(str(error).split())}"
    try:
        facts = json.loads((path / "run.json").read_text())
    except (OSError, ValueError):
        facts = {}
    facts = facts if isinstance(facts, dict) else {}
    if not isinstance(facts.get("git"), dict):
        facts["git"] = {}
    try:
        state = SweepFolder(path.parent).state(Job(path.name, [], config))
        state.status, state.reason = str(state.status), " ".join(str(state.reason).split())
    except (TypeError, ValueError) as error:
        state = State("failed", f"run.json and configuration do not fit: {' '.join(str(error).split())}")
    score = state.score if isinstance(state.score, int | float) and state.status == "finished" else None
    return RunRecord(path, state.status, state.reason or reason, score, config, facts)


def flat(node: Any, key: str = "") -> dict[str, Any]:
    """``{"algo.gamma": 0.99, ...}`` of a configuration's tree."""
    if not isinstance(node, dict):
        return {key: node} if key else {}
    return {k: v for name, child in node.items() for k, v in flat(child, f"{key}.{name}" if key else str(name)).items()}


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)  # 1 is not true


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else json.dumps(value, default=str)


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # in C, ten times as fast as OmegaConf's
    """Plain values alone; floats as OmegaConf reads them, 1e-5 too."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"""[-+]?(\d[\d_]*(\.[\d_]*)?[eE][-+]?\d+
            |\d[\d_]*\.[\d_]*
            |\.\d[\d_]*([eE][-+]?\d+)?
            |\.(inf|Inf|INF))$
            |\.(nan|NaN|NAN)$""",
        re.X,
    ),
    list("-+0123456789."),
)
