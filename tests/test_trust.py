"""A stranger's configuration, which does nothing but choose. What an attack would do is tried out first, where it works."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
from hydra._internal.utils import get_args_parser
from omegaconf import OmegaConf

from minerva import config, trust
from minerva.errors import UserError
from tests.conftest import ROOT
from tests.test_config import _hydra, compose  # noqa: F401  # a fixture for all here


@pytest.mark.parametrize(
    "name",
    [
        "os.system", "posix.system", "subprocess.run", "builtins.eval", "builtins.exec", "logging.os.system", "nonsense", "", "minerva", "eval",
        "minerva.config.os.system", "minerva.run.subprocess.run", "minerva.run.subprocess.Popen", "minerva.trust.import_module",
        "minerva.compiled.subprocess.run", "minerva.nothing.at.all", "minerva.algos.ppo.torch.load", "torch.hub.load", "numpy.load",
        "minervas.evil.X", "functools.partial", "hydra.utils.instantiate", "gymnasium.make", "minerva.run.Run.__init__.__globals__",
    ],
)  # fmt: skip
def test_a_target_is_what_it_is_by_its_own_name(name):
    with pytest.raises(
        UserError,
        match=r"^_target_=.*: allowed are classes of minerva, and of the packages that MINERVA_ALLOW_TARGETS names$",
    ):
        trust.target(name)


def test_a_target_of_a_package_that_the_user_allows(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "import os\nclass Reward:\n    def __init__(self, **values): self.values = values\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    cfg = OmegaConf.create(OmegaConf.to_container(compose()))
    cfg.reward._target_ = "mine.Reward"
    with pytest.raises(UserError, match=r"^reward\._target_=mine\.Reward: allowed are"):
        config.check(cfg)
    assert "mine" not in sys.modules, "refused before it was imported"
    monkeypatch.setenv(trust.ALLOW, "another,mine")
    config.check(cfg)
    assert config.build(cfg.reward, num_envs=1).values == {"scale": False, "clip": None, "num_envs": 1}
    with pytest.raises(UserError, match=r"_target_=mine\.os\.system: allowed are"):
        trust.target("mine.os.system")


def test_an_environment_s_module_is_imported_at_the_user_s_word_alone(monkeypatch):
    cfg = compose("env=gymnasium/any", "env.id=evil.module:Env-v0")
    with pytest.raises(UserError, match=r"^env\.id=evil\.module:Env-v0: imports code; .* MINERVA_ALLOW_TARGETS=evil$"):
        config.check(cfg)
    monkeypatch.setattr(sys, "argv", ["train.py", "env=gymnasium/any", "env.id=evil.module:Env-v0"])
    config.check(cfg)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    monkeypatch.setenv(trust.ALLOW, "evil")
    config.check(cfg)


def test_a_directory_s_name_is_not_the_user_s_word(monkeypatch):
    cfg = compose("env=gymnasium/any", "env.id=evil.module:Env-v0")
    monkeypatch.setattr(
        sys, "argv", ["train.py", "-cp", "/runs/evil.module:Env-v0/.hydra", "hydra.run.dir=evil.module:Env-v0"]
    )
    with pytest.raises(UserError, match=r"^env\.id=evil\.module:Env-v0: imports code"):
        config.check(cfg)


def test_arguments_of_an_environment_may_be_lists():
    config.check(compose("env=gymnasium/any", "env.id=Env-v0", "+env.kwargs.options=[{a:1},{b:[x]}]"))


def test_a_class_in_the_wrong_place_is_refused():
    cfg = OmegaConf.create(OmegaConf.to_container(compose()))
    cfg.algo = cfg.reward
    with pytest.raises(UserError, match=r"^algo\._target_=minerva\.envs\.reward\.RewardTransform: allowed are"):
        config.check(cfg)
    cfg = OmegaConf.create(OmegaConf.to_container(compose()))
    cfg.logger.csv = cfg.logger.pop("tensorboard")
    with pytest.raises(UserError, match=r"^logger\.csv: allowed is another name"):
        config.check(cfg)


def test_neither_is_that_of_an_environment_within_an_environment(monkeypatch):
    cfg = compose("env=gymnasium/any", "env.id=GymV26Environment-v0", "+env.kwargs.make_kwargs={id: 'evil:Env-v0'}")
    with pytest.raises(UserError, match=r"^env\.kwargs=evil:Env-v0: imports code; "):
        config.check(cfg)


TOUCH = "hydra: {{callbacks: {{x: {{_target_: pathlib.Path.touch, _args_: [{{_target_: pathlib.Path, _args_: ['{proof}']}}]}}}}}}"


@pytest.fixture
def strangers(python, tmp_path: Path) -> Path:
    """A configuration that was saved by a run."""
    done = python("train.py", "env=probe/constant", "--cfg", "job")
    assert done.returncode == 0
    (tmp_path / "config.yaml").write_text(done.stdout)
    return tmp_path / "config.yaml"


@pytest.mark.parametrize(
    ("added", "what"),
    [
        ("hydra: {{run: {{dir: '{proof}'}}}}", "hydra"),
        ("hydra: {{callbacks: {{x: {{_target_: os.makedirs, name: '{proof}'}}}}}}", "hydra"),
        ("hydra: {{searchpath: ['file://{folder}']}}", "hydra"),
        ("defaults: [evil, _self_]", "defaults"),
        ("# @package hydra", "@package"),
    ],
)
@pytest.mark.parametrize(
    "form",
    [
        "-cp {folder} -cn config",
        "--config-path={folder} --config-name=config.yaml",
        "-cp={folder} -cn=config",
        "--config-pat {folder} --config-n config",
        "-cn ../../{folder}/config",
    ],
)
def test_hydra_does_not_do_what_a_saved_configuration_says(python, strangers, tmp_path, added, what, form):
    proof = tmp_path / "proof"
    strangers.write_text(f"{added.format(proof=proof, folder=tmp_path)}\n{strangers.read_text()}")
    (tmp_path / "evil.yaml").write_text(
        f"# @package hydra\ncallbacks: {{x: {{_target_: os.makedirs, name: '{proof}'}}}}\n"
    )
    up = "../" * len(ROOT.parts)
    form = form.replace("../../", up)
    done = python(
        "train.py",
        *form.format(folder=str(tmp_path).lstrip("/") if up in form else tmp_path).split(),
        f"hydra.run.dir={tmp_path / 'run'}",
    )
    assert done.returncode == 1
    assert f"/config.yaml: has {what}: allowed is a saved configuration" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not proof.exists()
    assert not (tmp_path / "run").exists()


def test_hydra_does_not_see_what_lies_beside_a_saved_configuration(python, strangers, tmp_path):
    """What Hydra has in its ConfigStore, a file of the same name would replace."""
    proof = tmp_path / "proof"
    for group, name in (("launcher", "local"), ("launcher", "basic"), ("sweeper", "basic"), ("job_logging", "default")):
        (tmp_path / "hydra" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / "hydra" / group / f"{name}.yaml").write_text("defaults: [/evil@_global_, _self_]\n")
    (tmp_path / "evil.yaml").write_text(f"hydra: {{callbacks: {{x: {{_target_: os.makedirs, name: '{proof}'}}}}}}\n")
    where = (f"hydra.run.dir={tmp_path / 'run'}", "trainer.total_steps=1024", "logger={}", "compile=false")
    done = python("train.py", "-cp", tmp_path, "-cn", "config", *where)
    assert done.returncode == 0, done.stderr
    assert not proof.exists()
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["command"].startswith(f"python train.py -cp {tmp_path} -cn config hydra.run.dir=")
    assert "-cp" not in facts["command"][20:], "as it was typed"


@pytest.mark.parametrize("value", ["${oc.env:HOME}", "a ${oc.env:HOME} b", "${oc.decode:${seed}}", "${ token: }"])
def test_a_saved_configuration_calls_nothing(python, strangers, value):
    """It could read the environment, and have a logger send it."""
    strangers.write_text(strangers.read_text() + f"\nextra: {{deep: [{{er: '{value}'}}]}}\n")
    done = python("train.py", "-cp", strangers.parent, "-cn", "config")
    assert done.returncode == 1
    assert done.stderr == f"error: {strangers}: has {value}: allowed are values, and ${{key}}\n"


def test_what_a_run_was_given_by_a_resolver_is_saved_as_a_value(python, tmp_path):
    run = tmp_path / "run"
    given = (
        "env=probe/constant",
        "trainer.total_steps=1024",
        "logger=[]",
        "compile=false",
        "algo.gamma=${oc.env:G}",
    )
    assert python("train.py", *given, f"hydra.run.dir={run}", G="0.75").returncode == 0
    assert config.saved(run).algo.gamma == 0.75


@pytest.mark.parametrize("arguments", [[], ["seed=1"], ["-cn", "train"], ["--config-name=train"]])
def test_other_command_lines_are_left_alone(arguments, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    known, _ = get_args_parser().parse_known_args(arguments)
    trust.isolate(known.config_path, known.config_name, tmp_path / "train.py")
    assert sys.argv == ["train.py", *arguments]
    assert trust.typed() == arguments


def test_without_the_check_hydra_would(python, strangers, tmp_path):
    """The attack itself works: the configuration chooses where the run writes."""
    code = "import sys; from minerva import trust; trust.isolate = lambda *_: None; sys.argv[0] = 'train.py'; import runpy; runpy.run_path('train.py', run_name='__main__')"
    strangers.write_text(f"hydra: {{run: {{dir: '{tmp_path / 'proof'}'}}}}\n{strangers.read_text()}")
    done = python("-c", code, "-cp", tmp_path, "-cn", "config", "trainer.total_steps=4096")
    assert (tmp_path / "proof").exists(), done.stderr
