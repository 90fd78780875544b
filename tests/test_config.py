"""Every configuration composes and fits its class; every mistake gets one line."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import hydra
import pytest
from dm_control import suite
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from minerva import config
from minerva.errors import UserError
from minerva.schema import SCHEMAS, Rule

CONF = Path(__file__).parent.parent / "conf"

# What train.py adds to the values of each group.
LIVE = {
    "algo": {"network", "compile"},
    "env": {"on_hang"},
    "network": {"spec", "amp"},
    "reward": {"num_envs", "gamma"},
    "trainer": {"algo", "collector", "evaluator", "record", "loggers", "run_dir", "identity"},
    "logger": {"run_dir", "step", "config"},
}


@pytest.fixture(autouse=True)
def _hydra() -> Iterator[None]:
    config.register()
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        yield
    GlobalHydra.instance().clear()


def compose(*overrides: str) -> DictConfig:
    return hydra.compose("train", list(overrides))


def choices(group: str) -> list[str]:
    paths = (path.relative_to(CONF / group).with_suffix("").as_posix() for path in (CONF / group).rglob("*.yaml"))
    return sorted(name for name in paths if not name.endswith("base"))


def test_default_is_ppo_on_cheetah_run() -> None:
    cfg = compose()
    assert cfg.algo._target_ == "minerva.algos.ppo.PPO"
    assert cfg.env.id == "dm_control/cheetah-run-v0"


def test_every_task_of_the_control_suite_has_a_file() -> None:
    files = {name.removeprefix("dm_control/") for name in choices("env") if name.startswith("dm_control/")}
    assert files == {f"{domain}/{task}" for domain, task in suite.ALL_TASKS}
    assert len(files) == 51


@pytest.mark.parametrize("env", choices("env"))
def test_every_environment_composes(env: str) -> None:
    overrides = ["env.id=CartPole-v1"] if env == "gymnasium/any" else []
    cfg = compose(f"env={env}", *overrides)
    config.check(cfg)
    if env.startswith("dm_control/"):
        _, domain, task = env.split("/")
        assert cfg.env.id == f"dm_control/{domain}-{task}-v0"
    if env.startswith("gymnasium/") and not overrides:
        assert cfg.env.id == env.removeprefix("gymnasium/")


def test_tuned_values_come_by_themselves_and_the_command_line_wins() -> None:
    assert compose("env=gymnasium/CartPole-v1").trainer.total_steps == 100_000
    assert compose("env=gymnasium/CartPole-v1", "trainer.total_steps=5000").trainer.total_steps == 5000


@pytest.mark.parametrize(
    ("group", "name"), [(g, n) for g in ("algo", "network", "trainer", "logger") for n in choices(g)]
)
def test_every_group_fits_the_signature_of_its_class(group: str, name: str) -> None:
    cfg = compose(f"logger=[{name}]" if group == "logger" else f"{group}={name}")
    node = cfg.logger[name] if group == "logger" else cfg[group]
    check_signature(node, LIVE[group])


@pytest.mark.parametrize("group", ["env", "reward"])
def test_environment_and_reward_fit_the_signature_of_their_class(group: str) -> None:
    check_signature(compose()[group], LIVE[group])


def check_signature(node: DictConfig, live: set[str]) -> None:
    target = hydra.utils.get_object(node._target_)
    given = {str(key) for key in node if key != "_target_"} | live
    signature = inspect.signature(target)
    assert given == set(signature.parameters), "the YAML holds every argument, and none has a default in Python"
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in signature.parameters.values())


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF)))
def test_every_value_of_an_algorithm_is_commented(path: Path) -> None:
    if path.parent.name in ("algo", "network", "trainer"):
        lines = [
            line for line in path.read_text().splitlines() if line[:1].isalpha() and not line.startswith("defaults")
        ]
        known = {
            "gae_lambda",
            "adam_eps",
            "weight_decay",
            "value_layers",
            "adaptive_lr_min",
            "adaptive_lr_max",
        }  # named after what they are
        bare = {line.split(":")[0] for line in lines if "#" not in line}
        assert bare <= known


def test_every_schema_is_typed() -> None:
    for schema in SCHEMAS.values():
        assert OmegaConf.structured(schema) is not None
        assert all(entry.type for entry in fields(schema))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algo.gamma=1.5", "algo.gamma=1.5: allowed is from 0 to 1"),
        ("algo.gamma=nan", "algo.gamma=nan: allowed is from 0 to 1"),
        ("algo.minibatch_size=0", "algo.minibatch_size=0: allowed is at least 1"),
        ("algo.minibatch_size=4097", "algo.minibatch_size=4097: allowed is at most one rollout"),
        ("algo.learning_rate=0", "algo.learning_rate=0.0: allowed is above 0"),
        ("algo.learning_rate=inf", "algo.learning_rate=inf: allowed is above 0"),
        ("threads=0", "threads=0: allowed is auto, or from 1 to 1024"),
        ("threads=null", "threads=None: allowed is auto, or from 1 to 1024"),
        ("env.threads=true", "env.threads=True: allowed is auto, or from 1 to 1024"),
        ("compile=maybe", "compile=maybe: allowed is one of auto, true, false"),
        ("compile=null", "compile=None: allowed is one of auto, true, false"),
        ("env.backend=mujoco", "env.backend=mujoco: allowed is one of auto, gymnasium, envpool"),
        ("algo.optimizer=rmsprop", "algo.optimizer=rmsprop: allowed is one of adam, adamw, sgd"),
        ("algo.target_kl=-1", "algo.target_kl=-1.0: allowed is above 0"),
        ("network.policy_layers=[64,0]", "network.policy_layers=[64, 0]: allowed is from 1 to 65536"),
        ("network.popart_rate=1.1", "network.popart_rate=1.1: allowed is above 0 to 1"),
        ("env.num_envs=0", "env.num_envs=0: allowed is from 1 to 65536"),
        ("reward.clip=0", "reward.clip=0.0: allowed is above 0"),
        ("seed=-1", "seed=-1: allowed is from 0 to"),
        ("trainer.total_steps=4095", "trainer.total_steps=4095: allowed is at least one rollout"),
        ("device=tpu", "device=tpu: allowed is cpu, cuda, or cuda:N"),
        ("device=cuda:99", "device=cuda:99: there is no such device here; allowed is cpu"),
        ("env=gymnasium/any", "env.id: must be given"),
    ],
)
def test_values_out_of_range_are_named(override: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        config.check(compose(override))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_job_for_another_machine_may_have_devices_that_are_not_here() -> None:
    config.check(compose("device=cuda:99"), here=False)
    with pytest.raises(UserError, match=r"^device=tpu: allowed is cpu, cuda, or cuda:N$"):
        config.check(compose("device=tpu"), here=False)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algo.optimizer=adamw", "algo.optimizer=adamw: allowed is one of adam, sgd"),
        ("algo.temperature=fixed", "algo.temperature=fixed: allowed is one of solve, gradient"),
        ("algo.advantage=td", "algo.advantage=td: allowed is one of gae, returns, dae"),
        ("algo.topk_fraction=0", "algo.topk_fraction=0.0: allowed is above 0 to 1"),
        ("algo.temperature_init=0", "algo.temperature_init=0.0: allowed is at least 1e-08"),
        ("algo.minibatch_size=100000", "algo.minibatch_size=100000: allowed is at most one rollout"),
    ],
)
def test_values_of_vmpo_out_of_range_are_named(override: str, message: str) -> None:
    config.check(compose("algo=vmpo", "algo.minibatch_size=null"))
    config.check(compose("algo=vmpo", "algo.minibatch_size=1"))  # advantages are normalised over the rollout
    with pytest.raises(UserError) as error:
        config.check(compose("algo=vmpo", override))
    assert str(error.value).startswith(message)


def test_the_layers_of_a_shared_encoder_are_those_of_the_policy() -> None:
    config.check(compose("network.shared_encoder=true"))
    with pytest.raises(UserError, match=r"^network\.value_layers=\[64\]: allowed is policy_layers=\[128, 128\]"):
        config.check(compose("network.shared_encoder=true", "network.value_layers=[64]"))


def test_a_saved_configuration_is_checked_without_its_schema() -> None:
    cfg = OmegaConf.create(OmegaConf.to_container(compose()))
    config.check(cfg)
    cfg.algo.gamma = "high"
    with pytest.raises(UserError, match=r"^algo\.gamma: Value 'high'"):
        config.check(cfg)
    del cfg.algo.gamma
    with pytest.raises(UserError, match=r"algo\.gamma"):
        config.check(cfg)


@pytest.mark.parametrize("target", ["os.system", "minerva.config.os.system", "minerva.run.subprocess.run", "nonsense"])
def test_only_classes_of_minerva_are_built(target: str) -> None:
    with pytest.raises(UserError, match="allowed are classes of minerva"):
        config.build(OmegaConf.create({"_target_": target}))


def test_a_target_within_the_values_is_data() -> None:
    inner = {"_target_": "os.putenv", "key": "MINERVA_TEST", "value": "1"}
    node = OmegaConf.create({"_target_": "minerva.envs.reward.RewardTransform", "scale": inner, "clip": None})
    assert config.build(node, num_envs=1, gamma=0.5).scale == inner


def test_build_passes_live_objects_untouched() -> None:
    live = Rule(0, 1)  # a dataclass, which Hydra would turn into a configuration
    node = OmegaConf.create({"_target_": "minerva.envs.reward.RewardTransform", "scale": False, "clip": None})
    built = config.build(node, gamma=live, num_envs=1)
    assert built.gamma is live


def test_going_on_with_another_configuration_is_refused(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "last.pt").touch()
    (tmp_path / ".hydra").mkdir()
    OmegaConf.save(compose(), tmp_path / ".hydra" / "config.yaml")
    config.check_run_dir(compose("trainer.total_steps=2000000", "logger=[]"), str(tmp_path))
    with pytest.raises(UserError, match=r"^algo\.gamma=0\.9: .* was begun with algo\.gamma=0\.99"):
        config.check_run_dir(compose("algo.gamma=0.9"), str(tmp_path))
