"""From YAML to objects. With minerva.cli and minerva.sweeps what knows Hydra; it imports no torch."""

from __future__ import annotations

import logging
import os
import re
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import Field, fields
from datetime import datetime
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra.conf import HelpConf, HydraConf, JobConf, RunDir, SweepDir
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from minerva import auto, trust
from minerva.cli import fail
from minerva.errors import UserError
from minerva.explain import CONF, explain
from minerva.run import has_checkpoint, locked
from minerva.schema import MISSING, SCHEMAS, Train, broken_rule, broken_rules, conflicts, same_identity, schema_of

log = logging.getLogger(__name__)

SAVED = Path(".hydra") / "config.yaml"  # where Hydra keeps a job's configuration in its run directory
FIXED = ("algo", "env", "reward", "network")  # the groups that cannot change while a run goes on
_fitting: set[tuple[type, str, str]] = set()  # schema, key and value of what is all right

HELP = """\
${hydra.help.header}
Train an agent:      python train.py algo=ppo env=dm_control/cheetah/run
Change any value:    python train.py env=gymnasium/CartPole-v1 algo.gamma=0.98 seed=1
Sweep:               python train.py -m 'seed=range(5)'
See the whole configuration, with every key:   python train.py --cfg job
Complete with tab:   eval "$$(python train.py -sc install=bash)"

== Choices (GROUP=NAME) ==
algo:    $ALGOS
env:     dm_control/DOMAIN/TASK, gymnasium/ID, probe/NAME, or gymnasium/any env.id=ID
network: $NETWORKS
logger:  $LOGGERS; several as [a,b], none as []

${hydra.help.footer}
"""


def register() -> None:
    """Tell Hydra the schemas, and minerva's own defaults for Hydra itself.

    The latter stand here and not in train.yaml so that they hold as well when a saved configuration is run again, which
    does not read train.yaml.
    """
    store = ConfigStore.instance()
    for path, schema in SCHEMAS.items():
        group, _, name = f"schema/{path}".rpartition("/")
        store.store(group=group, name=name, node=schema)
    OmegaConf.register_new_resolver("run_name", _run_name, replace=True)
    OmegaConf.register_new_resolver("sweep_dir", _sweep_dir, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("token", lambda: os.urandom(2).hex(), use_cache=True, replace=True)
    template = HELP
    for group in ("algo", "network", "logger"):
        choices = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        template = template.replace(f"${group.upper()}S", ", ".join(choices))
    store.store(
        group="hydra",
        name="config",
        provider="minerva",
        node=HydraConf(
            run=RunDir("outputs/${run_name:}/${now:%Y-%m-%d_%H-%M-%S}_seed${seed}_${token:}"),
            sweep=SweepDir(dir="outputs/sweeps/${sweep_dir:${oc.select:sweep_name}}", subdir="${hydra.job.num}"),
            job=JobConf(name="train", chdir=False),
            help=HelpConf(
                app_name="minerva",
                header="minerva: reinforcement learning that runs fast and finishes\n",
                footer="Configuration keys are explained in conf/; more in docs/.",
                template=template,
            ),
            callbacks={"check": {"_target_": "minerva.config.Check"}},
            defaults=[
                {group: {"launcher": "local", "sweeper": "grid"}.get(group, choice)}
                for default in HydraConf().defaults
                for group, choice in default.items()
            ],
        ),
    )


def _run_name(*, _root_: DictConfig) -> str:
    """``ALGO/ENV``, as names of two directories."""
    algo = str(_root_.algo._target_).rpartition(".")[2].lower()
    return f"{algo}/{re.sub(r'[^A-Za-z0-9_.]+', '-', str(_root_.env.id)).strip('-')}"


def _sweep_dir(name: str | None) -> str:
    """The sweep's name; where it has none, when it was begun, and what no other has."""
    return str(name or f"{datetime.now():%Y-%m-%d_%H-%M-%S}_{os.urandom(2).hex()}")


def load(run_dir: Path) -> DictConfig:
    """The configuration a run was begun with, checked; for using here what it learned.

    Raises:
        UserError: there is none, or it is not allowed.
    """
    config = saved(run_dir)
    config.device, config.compile, config.amp = "cpu", False, None
    check(config)
    if config.env.backend == "envpool" and not config.env.allow_different and find_spec("envpool") is None:
        config.env.backend = "gymnasium"  # the same task, where this one is not installed
    auto.settle(config)
    return config


def saved(run_dir: Path) -> DictConfig:
    """The configuration a run was begun with, read as data.

    Raises:
        UserError: there is none, or it cannot be read.
    """
    try:
        config = trust.read(run_dir / SAVED)
        OmegaConf.resolve(config)
    except FileNotFoundError:
        raise UserError(f"{run_dir}: not a run directory, there is no {SAVED} in it") from None
    except OmegaConfBaseException as error:
        raise UserError(f"{run_dir / SAVED}: {explain(error)}") from error
    return config


def build(node: DictConfig, **live: Any) -> Any:
    """Instantiate the ``_target_`` of ``node`` with its values and with ``live`` objects.

    A ``_target_`` within the values is not followed: they are data.

    Raises:
        UserError: the target is neither one of minerva's own nor one that the user allows.
    """
    values: Any = OmegaConf.to_container(node, resolve=True)
    return trust.target(str(values.pop("_target_")))(**(values | live))


def network(node: DictConfig, spec: Any, amp: str | None) -> Any:
    """Policy and value function for an environment of ``spec``, a :class:`minerva.types.EnvSpec`; their backbones are made of a node of its own."""
    backbone = node.get("backbone")
    return build(node, spec=spec, backbone=backbone and partial(build, backbone), amp=amp)


def recorder(config: DictConfig, *, seed: int, device: Any = None, on_hang: Callable[[str], None] | None = None) -> Any:
    """What records episodes of the environment of ``config``, on a backend that can show them: a :class:`minerva.video.Recorder`.

    Raises:
        UserError: the environment shows no pictures.
    """
    from minerva.video import Recorder

    kwargs = OmegaConf.to_container(config.env.kwargs, resolve=True)
    assert isinstance(kwargs, dict)
    backend = {"backend": "gymnasium", "kwargs": kwargs | {"render_mode": "rgb_array"}}
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame, which draws classic control, would look for a display
    try:
        with warnings.catch_warnings():  # of gymnasium, of what the error says
            warnings.simplefilter("ignore")
            env = build(config.env, num_envs=1, stagger=0, on_hang=on_hang, **backend)
            return Recorder(env=env, seed=seed, max_steps=config.trainer.max_eval_steps, device=device)
    except UserError as error:
        raise UserError(
            f"trainer.video, video.py: allowed is an environment that shows pictures (render_mode=rgb_array): {error}"
        ) from error


def check(config: DictConfig, here: bool = True) -> None:
    """Refuse a configuration with a missing key, a wrong type, or a value out of range.

    Args:
        config: of a job.
        here: whether it is to run on this machine, which then must have its device.

    Raises:
        UserError: naming the key, the value and what is allowed.
    """
    _check_node(config, "", Train)
    if taken := {"csv", "console"} & {*config.logger}:
        raise UserError(f"logger.{min(taken)}: allowed is another name, for there always is one of this")
    for group in (*FIXED, "trainer", *(f"logger.{name}" for name in config.logger)):
        _check_node(OmegaConf.select(config, group), f"{group}.")
    if config.network.get("backbone") is not None:
        _check_node(config.network.backbone, "network.backbone.")
    if problem := next(conflicts(config), None):
        raise UserError(problem)
    _check_device(config.device, here)
    trust.check_import("env.id", str(config.env.id))
    for value in trust.leaves(OmegaConf.to_container(config.env.kwargs, resolve=True)):
        trust.check_import("env.kwargs", str(value))


def _check_node(node: Any, key: str, schema: type | None = None) -> None:
    if not isinstance(node, DictConfig):
        raise UserError(f"{key[:-1]}={node}: allowed is a group of keys, as in conf/")
    schema = schema or schema_of(node, key.partition(".")[0])
    if OmegaConf.is_missing(node, "_target_"):
        raise UserError(f"{key}_target_: must be given, as {key}_target_=mypackage.MyClass")
    if schema is None and trust.allowed(str(node.get("_target_"))):
        return  # the user's own, which no schema knows
    if schema is None:
        raise UserError(f"{key}_target_={node.get('_target_')}: allowed are the classes that conf/ names")
    try:  # once more, since a saved configuration is composed without its schemas
        values = OmegaConf.to_container(node, resolve=True)
        assert isinstance(values, dict)
        if schema is Train:  # the groups have schemas of their own
            values = {name: {} if isinstance(value, dict) else value for name, value in values.items()}
        entries = {entry.name: entry for entry in fields(schema)}
        if entries.keys() == values.keys() and all(_fits(schema, entries[name], values[name]) for name in entries):
            return
        # Something is wrong; what it is, and how to say it, is found by putting all together.
        typed = OmegaConf.merge(OmegaConf.structured(schema), values)
    except OmegaConfBaseException as error:
        # OmegaConf does not name a list or a group of keys that stands where another kind of value should.
        raise UserError(explain(error, within=key + ("" if error.full_key else _misfit(schema, node)))) from error
    for missing in sorted(OmegaConf.missing_keys(typed)):
        raise UserError(f"{key}{missing}: must be given, as {key}{missing}=...")
    if problem := next(broken_rules(schema, OmegaConf.to_container(typed), key), None):  # type: ignore[arg-type]
        raise UserError(problem)


def _fits(schema: type, entry: Field[Any], value: Any) -> bool:
    """Whether ``value`` may stand there. In a sweep's thousand jobs most values are the same."""
    known = schema, entry.name, repr(value)
    if known not in _fitting:
        try:
            _blank(schema)[entry.name] = value
            typed: Any = OmegaConf.to_container(_blank(schema))
        except OmegaConfBaseException:
            return False
        if value == MISSING or broken_rule(entry, typed[entry.name]):
            return False
        _fitting.add(known)
    return True


@cache
def _blank(schema: type) -> DictConfig:
    """What takes a value of the right type alone."""
    return OmegaConf.structured(schema)


def _misfit(schema: type, node: DictConfig) -> str:
    """The first key of ``node`` that does not go into ``schema``."""
    for name in node:
        try:
            OmegaConf.merge(OmegaConf.structured(schema), {name: node[name]})
        except OmegaConfBaseException:
            return str(name)
    return ""


def _check_device(device: str, here: bool) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"device={device}: allowed is cpu, cuda, or cuda:N")
    if device == "cpu" or not here:
        return
    import torch

    if torch.cuda.device_count() <= int(device.partition(":")[2] or 0):
        present = ", ".join(["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise UserError(f"device={device}: there is no such device here; allowed is {present}")


def settle(config: DictConfig, run_dir: Path) -> None:
    """Replace every ``auto`` by what it stands for, here and in the configuration that was saved in ``run_dir``."""
    auto.settle(config)
    if (run_dir / SAVED).exists():
        OmegaConf.save(config, run_dir / SAVED, resolve=True)


def run_dir() -> Path:
    """The directory of the run that Hydra has begun."""
    return Path(HydraConfig.get().runtime.output_dir)


def loggers(config: DictConfig, run_dir: Path) -> Callable[[int, int], Any]:
    """What makes the run's loggers, given the step it begins at and the step it ends at."""
    from minerva.loggers.console import ConsoleLogger
    from minerva.loggers.csv import CSVLogger
    from minerva.loggers.group import LoggerGroup

    values = OmegaConf.to_container(config, resolve=True)

    def make(step: int, total_steps: int) -> Any:
        live = {"run_dir": run_dir, "step": step, "config": values}
        return LoggerGroup(
            {
                "console": partial(ConsoleLogger, total_steps=total_steps, step=step),
                "csv": partial(CSVLogger, path=run_dir / "metrics.csv", step=step),
                **{name: partial(build, node, **live) for name, node in config.logger.items()},
            }
        )

    return make


def summary(config: DictConfig) -> str:
    """The configuration in short: a paragraph for each group."""
    where = f"{config.device}, {config.threads} thread{'s' if config.threads > 1 else ''}"
    paragraphs = [("run", f"seed {config.seed}, {where}")]
    for group in ("env", "algo", "network", "trainer"):
        values = OmegaConf.to_container(config[group], resolve=True)
        assert isinstance(values, dict)
        name = str(values.pop("_target_")).rpartition(".")[2]
        paragraphs.append((group, f"{name}: " + ", ".join(f"{key!s} {value}" for key, value in values.items())))
    return "\n".join(
        textwrap.fill(text, 120, initial_indent=f"{title:<9}", subsequent_indent=" " * 9) for title, text in paragraphs
    )


class Check(Callback):
    """Checks a run before Hydra makes its directory, so that a mistake leaves nothing behind."""

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a bad configuration, or one that does not continue what its run directory holds."""
        try:
            check(_without_hydra(config))
            check_place("hydra.run.dir", str(config.hydra.run.dir))
            check_run_dir(config, str(config.hydra.run.dir))
        except Exception as error:
            fail(error)  # SystemExit; Hydra makes warnings of exceptions here

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Refuse a directory that a sweep cannot be in."""
        try:
            check_place("hydra.sweep.dir", str(config.hydra.sweep.dir))
        except Exception as error:
            fail(error)


def _without_hydra(config: DictConfig) -> DictConfig:
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def check_place(key: str, folder: str) -> None:
    """Refuse a directory that cannot be made, or not be written to."""
    if not folder:
        raise UserError(f"{key}=: allowed is a directory, to be made or of a run to go on with")
    path = Path(folder).absolute()
    while not path.exists():
        path = path.parent
    why = None
    if not path.is_dir():
        why = f"{path} is a file"
    elif not os.access(path, os.W_OK | os.X_OK):
        why = f"{path} cannot be written to"
    elif any(len(os.fsencode(part)) > os.pathconf(path, "PC_NAME_MAX") for part in Path(folder).parts):
        why = "a name in it is too long"
    if why:
        raise UserError(f"{key}={folder}: {why}; allowed is a directory, to be made or of a run to go on with")


def check_run_dir(config: DictConfig, run_dir: str) -> None:
    """Refuse to go on where a run was begun with another algorithm, environment, network or seed.

    What ``config`` leaves to ``auto`` is as it was then.

    Raises:
        UserError: naming the first key that differs.
    """
    if locked(Path(run_dir)):
        raise UserError(f"hydra.run.dir={run_dir}: another process is training there")
    if has_checkpoint(Path(run_dir)):
        before = saved(Path(run_dir))
        auto.settle(before)
        auto.settle(config, before)
        same_identity(identity(before), identity(config), run_dir)
        for key in ("device", "threads"):
            if config[key] != before[key]:
                was, now = f"{key}={before[key]}", f"{key}={config[key]}"
                log.warning(
                    "%s: begun with %s; with %s it goes on to other numbers, in the last bits", run_dir, was, now
                )


def identity(config: DictConfig) -> dict[str, Any]:
    """What makes a run that run: its algorithm, environment, network and seed, as ``{"algo.gamma": 0.99, ...}``."""
    fixed = (*FIXED, "seed", "compile", "amp")
    return {
        key: value
        for group in fixed
        for key, value in _flat(config.get(group), group).items()
        if key not in ("env.threads", "env.timeout")  # of no influence on a number
    }


def values(config: DictConfig) -> dict[str, Any]:
    """All that decides what a run computes: its identity, how long it trains, and on what."""
    return identity(config) | {
        key: value
        for group in ("trainer", "threads", "device")
        for key, value in _flat(config.get(group), group).items()
    }


def _flat(node: Any, key: str) -> dict[str, Any]:
    """``{"algo.gamma": 0.99, ...}`` for the node ``algo``."""

    def walk(node: Any, key: str) -> dict[str, Any]:
        if not isinstance(node, dict):
            return {key: node}
        return {k: v for name, child in node.items() for k, v in walk(child, f"{key}.{name}").items()}

    return walk(OmegaConf.to_container(node, resolve=True) if isinstance(node, DictConfig) else node, key)
