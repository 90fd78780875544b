"""A stranger's configuration, which does nothing but choose. What an attack would do is tried out first, where it works."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from minerva import config, trust
from minerva.errors import UserError
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


def test_neither_is_that_of_an_environment_within_an_environment(monkeypatch):
    cfg = compose("env=gymnasium/any", "env.id=GymV26Environment-v0", "+env.kwargs.make_kwargs={id: 'evil:Env-v0'}")
    with pytest.raises(UserError, match=r"^env\.kwargs\.make_kwargs\.id=evil:Env-v0: imports code; "):
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
        "-cp{folder} -cnconfig",
    ],
)
def test_hydra_does_not_do_what_a_saved_configuration_says(python, strangers, tmp_path, added, what, form):
    proof = tmp_path / "proof"
    strangers.write_text(f"{added.format(proof=proof, folder=tmp_path)}\n{strangers.read_text()}")
    (tmp_path / "evil.yaml").write_text(
        f"# @package hydra\ncallbacks: {{x: {{_target_: os.makedirs, name: '{proof}'}}}}\n"
    )
    done = python("train.py", *form.format(folder=tmp_path).split(), f"hydra.run.dir={tmp_path / 'run'}")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {strangers}: has {what}: allowed is a saved configuration")
    assert done.stderr.count("\n") == 1
    assert not proof.exists()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments", [[], ["seed=1"], ["-cn", "train"], ["-cp"], ["--config-path", "nowhere", "-cn", "nothing"]]
)
def test_other_command_lines_are_left_alone(arguments, tmp_path):
    trust.check_saved(arguments, tmp_path / "train.py")


def test_without_the_check_hydra_would(python, strangers, tmp_path):
    """The attack itself works: the configuration chooses where the run writes."""
    code = "import sys; from minerva import trust; trust.check_saved = lambda *_: None; sys.argv[0] = 'train.py'; import runpy; runpy.run_path('train.py', run_name='__main__')"
    strangers.write_text(f"hydra: {{run: {{dir: '{tmp_path / 'proof'}'}}}}\n{strangers.read_text()}")
    done = python("-c", code, "-cp", tmp_path, "-cn", "config", "trainer.total_steps=4096")
    assert (tmp_path / "proof").exists(), done.stderr
