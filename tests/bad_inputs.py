"""What a user, a typing error or a stranger may give to minerva that it must refuse: each in one line that names what is wrong.

A command is one of train.py unless it begins with another script; ``@`` in it is the directory of the case, and ``@/run`` a copy of a run.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import torch

from minerva.schema import SCHEMAS, Rule
from tests.test_checkpoint import Malicious

TINY = (
    "env=gymnasium/CartPole-v1 env.backend=gymnasium env.num_envs=2 algo.num_steps=16 algo.minibatch_size=16 trainer.total_steps=64 "
    "trainer.eval_episodes=1 trainer.final_eval_episodes=1 logger=[] network.policy_layers=[4] network.value_layers=[4] "
    "compile=false threads=1"
)


class Bad(NamedTuple):
    """A bad input.

    Attributes:
        command: as in a shell.
        says: the line on stderr has this.
        change: done to the copy of a run beforehand; None for a case without one.
        torch: whether it is found so late that torch is loaded.
        code: the process exits with this; argparse with 2.
        name: of the case, where the command does not tell it from others.
        env: environment variables.
    """

    command: str
    says: str
    change: Callable[[Path], Any] | None = None
    torch: bool = False
    code: int = 1
    name: str = ""
    env: dict[str, str] = {}  # noqa: RUF012


# Good ones, to see that the judge of the bad ones can tell.
GOOD = ["--cfg job", "--help", TINY, f"-m {TINY} algo=vmpo seed=0,1", "scripts/evaluate.py @/run --episodes 1"]

LETTERS = "x" * 300
# Command lines, and what the line must have; found before torch is loaded.
COMMANDS = {
    "misspelt": [
        ("algo.gama=0.9", "algo.gama: there is no such key; nearest: algo.gamma"),
        ("+algo.gama=0.9", "algo.gama: there is no such key; nearest: algo.gamma"),
        ("++nothing=1", "nothing: there is no such key"),
        ("+nothing=1", "nothing: there is no such key"),
        ("alg.gamma=0.9", "alg: there is no such key; nearest: algo"),
        ("alog=ppo", "alog: there is no such key; nearest: algo"),
        ("hydra.nope=1", "hydra.nope: there is no such key"),
        ("algo=pppo", "algo=pppo: there is no such choice; nearest: ppo"),
        ("env=dm_control/cheeta/run", "nearest: dm_control/cheetah/run"),
        ("env=dm_control", "env=dm_control: there is no such choice"),
        ("env=", "env=: there is no such choice"),
        ("network=ccn", "network=ccn: there is no such choice; nearest: cnn"),
        ("logger=[tensorboard,nope]", "logger=nope: there is no such choice"),
        ("algo=/etc/passwd", "algo=/etc/passwd: there is no such choice"),
        ("sweep=nope", "sweep=nope: there is no such choice"),
        ("hydra/launcher=nope", "hydra/launcher/nope: there is no such configuration file"),
        ("logger.wandb.mode=online", "logger.wandb: is not there yet; add it as +logger.wandb"),
        ("env.kwargs.a=1", "env.kwargs.a: is not there yet; add it as +env.kwargs.a"),
        ("algo._target_=minerva.algos.vmpo.VMPO", "algo.update_epochs: there is no such key"),
    ],
    "not a number": [
        ("algo.gamma=nan", "algo.gamma=nan: allowed is from 0 to 1"),
        ("algo.gamma=-inf", "algo.gamma=-inf: allowed is from 0 to 1"),
        ("algo.learning_rate=1e400", "algo.learning_rate=inf: allowed is above 0, and at most 1e+37"),
        ("algo.clip_coef=1e300", "algo.clip_coef=1e+300: allowed is above 0, and at most 1e+37"),
        ("algo.num_steps=1e3", "algo.num_steps: Value '1000.0'"),
        ("algo.num_steps=true", "algo.num_steps: Value 'True'"),
        (f"algo.num_steps={10**30}", f"algo.num_steps={10**30} "),
        (f"trainer.total_steps={10**40}", "trainer.total_steps="),
        (f"trainer.eval_episodes={10**12}", "trainer.eval_episodes=1000000000000: allowed is from 1 to 65536"),
        (f"env.num_envs={10**12}", "env.num_envs=1000000000000: allowed is from 1 to 65536"),
        (f"network.policy_layers=[64,{10**18}]", "network.policy_layers=[64, 1000000000000000000]: allowed is"),
        ("network.policy_layers=[[64]]", "network.policy_layers=[[64]]: allowed is a list of plain values"),
        ("seed=-1", "seed=-1: allowed is from 0 to 4294967295"),
        ("seed=4294967296", "seed=4294967296: allowed is from 0"),
        ("seed=", "seed: Value ''"),
        ("seed=abc", "seed: Value 'abc'"),
        ("seed=½", "seed=½: "),
        ("seed=None", "seed: Value 'None'"),
        ("seed=[1]", "seed: Value '[1]'"),
        ("seed={a:1}", "seed: Value '{'a': 1}'"),
        ("env.timeout=1e30", "env.timeout=1e+30: allowed is above 0 to 1000000000"),
        ("threads=two", "threads=two: allowed is auto, or from 1 to 1024"),
        ("threads=[1]", "threads=[1]: allowed is auto"),
        ("threads=100000000", "threads=100000000: allowed is auto"),
        ("env.threads=[2]", "env.threads=[2]: allowed is auto"),
    ],
    "not a word": [
        ("compile=1", "compile=1: allowed is one of auto, true, false"),
        ("compile=[true]", "compile=[True]: allowed is one of auto, true, false"),
        ("amp=bf16", "amp=bf16: allowed is null with device=cpu"),
        ("amp=half", "amp=half: allowed is one of bf16, fp16"),
        ("device=tpu", "device=tpu: allowed is cpu, cuda, or cuda:N"),
        ("device=", "device=: allowed is cpu"),
        ("device=cuda:-1", "device=cuda:-1: allowed is cpu"),
        ("algo.optimizer=[adam]", "algo.optimizer: Cannot convert 'list'"),
        ("env.backend=mujoco", "env.backend=mujoco: allowed is one of"),
        ("env.kwargs=5", "env.kwargs: Cannot assign int"),
        ("env.kwargs={5:1}", "env.kwargs: Key 5"),
        ("logger=[wandb] logger.wandb.mode=offlin", "logger.wandb.mode=offlin: allowed is one of online, offline"),
        ("logger=[wandb] logger.wandb.tags=[[a]]", "logger.wandb.tags=[['a']]: allowed is a list"),
        ("logger.tensorboard=null", "logger.tensorboard=None: allowed is a group"),
        ("+logger.x=5", "logger.x=5: allowed is a group"),
    ],
    "grammar": [
        ("algo.gamma=[", "algo.gamma=[: cannot be read as KEY=VALUE"),
        ("algo.gamma=]", "algo.gamma=]: cannot be read as KEY=VALUE"),
        ("'algo.gamma={a:'", "algo.gamma={a:: cannot be read as KEY=VALUE"),
        ('"algo.gamma=\'0.9"', "algo.gamma='0.9: a quote is not closed"),
        ("'algo.gamma=\"0.9'", 'algo.gamma="0.9: a quote is not closed'),
        ("'algo.gamma=${'", "algo.gamma=${: cannot be read as KEY=VALUE"),
        ("=x", "+=x"),
        ("==", "==: cannot be read as KEY=VALUE"),
        ("a==b", "a==b: cannot be read as KEY=VALUE"),
        ("seed", "seed: cannot be read as KEY=VALUE"),
        ("''", ": cannot be read as KEY=VALUE"),
        ("'seed=1 seed=2'", "seed=1 seed=2: cannot be read as KEY=VALUE"),
        ("seed=sort(", "seed=sort(: cannot be read as KEY=VALUE"),
        ("seed='int(x)'", "seed=int(x): cannot be read as KEY=VALUE"),
        ("+seed=1", "seed"),
        ("seed=1,2", "seed=1,2"),
        ("'seed=range(3)'", "seed=range(3)"),
        ("'seed=${seed}'", "seed: Recursive interpolation"),
        ("'algo.gamma=${nothing}'", "algo.gamma: Interpolation key 'nothing' not found"),
        ("'algo.gamma=${nothing:1}'", "algo.gamma: Unsupported interpolation type nothing"),
        ("'algo.gamma=${oc.env:NOT_SET}'", "algo.gamma: KeyError"),
        ("algo.gamma=???", "algo.gamma: must be given"),
        ("env=gymnasium/any", "env.id: must be given, as env.id=..."),
    ],
    "taken away": [
        ("~algo", "algo: must be given, as one name: algo=..."),
        ("~env", "env: must be given"),
        ("~network", "network: must be given"),
        ("~trainer", "trainer: must be given"),
        ("~reward", "reward: must be given"),
        ("~logger", "'logger'"),
        ("~seed", "seed: must be given"),
        ("~algo.gamma", "algo.gamma: "),
        ("~nothing", "'nothing' does not exist"),
        ("~seed=1", "'seed' is 0 and not 1"),
        ("algo=null", "algo=null: allowed is the name of a file in conf/"),
        ("env=null", "env=null: allowed is the name"),
        ("logger=null", "logger=null: allowed is the name"),
        ("network=5", "network=5: allowed is the name"),
        ("reward=null", "reward=None: allowed is a group"),
        ("algo=[ppo,vmpo]", "algo: must be given, as one name"),
    ],
    "conflict": [
        ("trainer.total_steps=1", "trainer.total_steps=1: allowed is at least one rollout"),
        ("algo.minibatch_size=4097", "algo.minibatch_size=4097: allowed is at most one rollout"),
        ("algo.minibatch_size=1", "algo.minibatch_size=1: allowed is at least 2 with algo.norm_adv=true"),
        ("algo.adaptive_lr_min=1", "algo.adaptive_lr_min=1.0: allowed is at most adaptive_lr_max=0.001"),
        (
            "network.shared_encoder=true network.value_layers=[64]",
            "network.value_layers=[64]: allowed is policy_layers",
        ),
    ],
    "target": [
        ("algo._target_=os.system", "algo._target_=os.system: allowed are the classes that conf/ names"),
        ("env._target_=builtins.eval", "env._target_=builtins.eval: allowed are"),
        ("reward._target_=minerva.run.subprocess.run", "reward._target_=minerva.run.subprocess.run: allowed are"),
        ("+logger.x={_target_:os.system}", "logger.x._target_=os.system: allowed are"),
        (
            "+logger.x._target_=minerva.loggers.csv.CSVLogger",
            "logger.x._target_=minerva.loggers.csv.CSVLogger: allowed are",
        ),
    ],
    "place": [
        ("hydra.run.dir=", "hydra.run.dir=: allowed is a directory"),
        ("hydra.run.dir=null", "hydra.run.dir: "),
        ("hydra.run.dir=???", "hydra.run.dir: "),
        ("'hydra.run.dir=${nothing}'", "hydra.run.dir: Interpolation key 'nothing' not found"),
        ("hydra.run.dir=/dev/null", "hydra.run.dir=/dev/null: /dev/null is a file"),
        ("hydra.run.dir=/etc/passwd/a/b", "hydra.run.dir=/etc/passwd/a/b: /etc/passwd is a file"),
        ("hydra.run.dir=/proc/x", "/proc/x: No such file or directory"),
        (f"hydra.run.dir=new/{LETTERS}", "a name in it is too long"),
        ("hydra.run.dir=@/readonly/run", "cannot be written to; allowed is a directory"),
        ("-cp nowhere -cn config", "/nowhere"),
        ("-cp /etc/passwd -cn config", "/etc/passwd"),
        ("-cp @ -cn config", "@/config.yaml: there is no such file"),
        ("-cn nothing", "'nothing'"),
        ("-cp= -cn=", "has defaults: allowed is a saved configuration"),
        ("--config-dir nowhere", "/nowhere"),
    ],
    "sweep": [
        ("-m seed=1,x", "seed: Value 'x'"),
        ("-m seed=1,", "seed=1,: cannot be read as KEY=VALUE"),
        ("-m algo.gamma=0.9,2", "algo.gamma=2.0: allowed is from 0 to 1"),
        ("-m algo=ppo,nope", "algo=nope: there is no such choice"),
        ("-m algo.gama=1,2", "algo.gama: there is no such key"),
        ("-m 'seed=range(0)'", "seed=range(0): a sweep of no jobs"),
        ("-m 'seed=choice()'", "seed=choice(): "),
        ("-m 'seed=range('", "seed=range(: cannot be read as KEY=VALUE"),
        ("-m sweep=nope", "sweep=nope: there is no such choice"),
        ("-m sweep=results device=tpu", "device=tpu: allowed is"),
        ("-m hydra.sweep.dir=", "hydra.sweep.dir=: allowed is a directory"),
        ("-m hydra.sweep.dir=/dev/null/x", "hydra.sweep.dir=/dev/null/x: /dev/null is a file"),
        ("hydra.mode=NOPE", "hydra.mode: "),
        ("hydra.mode=MULTIRUN algo.gamma=5", "algo.gamma=5.0: allowed is"),
        ("--run -m", "--multirun"),
        ("--resolve", "--resolve"),
    ],
}

# The same, of what is known to be wrong only when the parts are built.
LATE = [
    ("device=cuda:99", "device=cuda:99: there is no such device here; allowed is cpu"),
    (f"device=cuda:{10**30}", "there is no such device here"),
    *(
        (f"{TINY} env=gymnasium/any env.id={id}", f"env.id={id}: cannot be made: {why}")
        for id, why in [
            ("", "Malformed"),
            ("5", ""),
            ("CartPoole-v1", ""),
            ("CartPole-v99", ""),
            ("nomodule:X-v0", "No module named 'nomodule'"),
            ("no.such.module:X-v0", "No module named"),
            (":X-v0", ""),
            ("a:b:c", ""),
            ("os:", ""),
            ("os:X-v0", ""),
            ("..x:X-v0", ""),
            ("dm_control/nope-v0", ""),
            ("ALE/Pong-v5", "Namespace ALE not found"),
        ]
    ),
    (f"{TINY} env=gymnasium/any \"env.id='Ünï-v0'\"", "env.id=Ünï-v0: cannot be made"),
    (f"{TINY} +env.kwargs.nope=1", "unexpected keyword argument 'nope'"),
    (f"{TINY} +env.kwargs.id=x", "env.id=CartPole-v1: cannot be made"),
    (f"{TINY} +env.kwargs.max_episode_steps=5", "env.id=CartPole-v1: cannot be made"),
    (f"{TINY} +env.kwargs.a._target_=os.system", "env.id=CartPole-v1: cannot be made"),
    (f"{TINY} env.backend=envpool +env.kwargs.a=1", "env.kwargs={'a': 1}: allowed is {}"),
    (f"{TINY} env=gymnasium/any env.id=Nope-v0 env.backend=envpool", "env.backend=envpool: "),
    (f"{TINY} algo.num_steps={10**14} trainer.total_steps={10**16}", "there is not enough memory here"),
    (f"{TINY} env=gymnasium/any env.id=tests.envs.odd:odd/Graph-v0", "observation space Graph is not supported"),
    (f"{TINY} env=gymnasium/any env.id=tests.envs.odd:odd/Text-v0", "action space"),
]

# Of argparse, in its two lines.
USAGE = [
    ("--nope", "unrecognized arguments: --nope"),
    ("-x", "unrecognized arguments: -x"),
    ("-cp", "-cp: expected one argument"),
    ("--cfg nope", "invalid choice: 'nope'"),
    ("--info nope", "invalid choice: 'nope'"),
    ("scripts/evaluate.py", "run"),
    ("scripts/evaluate.py @ more", "unrecognized arguments: more"),
    ("scripts/evaluate.py @ --episodes 0", "--episodes=0: allowed is at least 1"),
    ("scripts/evaluate.py @ --episodes 1.5", "--episodes: invalid int value: '1.5'"),
    ("scripts/evaluate.py @ --checkpoint nope", "invalid choice: 'nope'"),
    ("scripts/evaluate.py @ --seed x", "--seed: invalid int value: 'x'"),
    ("scripts/reproduce.py", "run"),
    ("scripts/reproduce.py @ --steps many", "--steps: invalid int value: 'many'"),
]


def commands() -> Iterator[Bad]:
    """What is wrong with a command line alone."""
    for kind, cases in COMMANDS.items():
        yield from (Bad(command, says, name=f"{kind}: {command}"[:80]) for command, says in cases)
    yield from (Bad(command, says, torch=True, name=f"late: {command.removeprefix(TINY)}") for command, says in LATE)
    yield from (Bad(command, says, code=2) for command, says in USAGE)
    for allow in ("", ",", "eviler", "evil.other", "*", "evil,", " evil"):
        late = allow == "evil,"  # which is allowed, and not there
        says = "_target_=evil.X: allowed are"
        command = f"{TINY} algo._target_=evil.X"
        yield Bad(
            command, says, torch=late, name=f"MINERVA_ALLOW_TARGETS={allow}", env={"MINERVA_ALLOW_TARGETS": allow}
        )


# Every key of every schema

# What it takes to have these keys.
CHOOSE = {
    "algo/vmpo": ("algo=vmpo",),
    "logger/wandb": ("logger=[wandb]",),
    "network/cnn": ("network=cnn",),
    "network/transformer": ("network=transformer",),
}


def wrong_values(key: str, type: str, rule: Rule | None) -> list[str]:
    """Values that ``key``, of this ``type`` and ``rule``, does not allow, as on a command line; those beyond the rule's bounds last."""
    optional = [] if "None" in type else ["null"]
    if key in ("algo", "env", "network", "trainer", "logger", "reward"):
        return ["null", "5", "2.5"]
    if key == "network.backbone":
        return ["5", "word", "[1]", "true"]
    if rule and rule.names:
        return ["[1]", "{a:1}", "1.5", "true", "''", "-2", "null"]
    if key.endswith("_target_"):
        return ["os.system", "null", "[a]", "{a:1}", "''"]
    if type.startswith("list[int]"):
        return ["5", "word", "[a]", "[[1]]", "[1.5]", "[null]", "{a:1}", "null", "[nan]", "[0]", "[65537]"]
    if type.startswith("list"):
        return ["5", "word", "{a:1}", "[[a]]", *optional]
    if type.startswith("dict"):
        return ["5", "[1]", "word", "null"]
    if type.startswith("bool"):
        return ["maybe", "null", "[true]", "{a:1}", "nan"]
    if type.startswith("str"):
        return ["[a]", "{a:1}", *optional, *(["nope", "5", "''", "nan"] if rule else [])]
    if rule and rule.choices:  # of words, true and false
        return ["maybe", "null", "1", "[true]", "{a:1}", "nan"]
    number = [
        "word",
        "[1]",
        "{a:1}",
        "nan",
        "inf",
        "-1e400",
        "''",
        *optional,
        *(["1.5", "true"] if "float" not in type else []),
    ]
    low = [f"{rule.low if rule.open_low else rule.low - 1:.10g}"] if rule and rule.low is not None else []
    high = [f"{rule.high + 1:.11g}" if rule.high < 1e10 else "1e38"] if rule and rule.high else []
    return number + low + high


def keys() -> Iterator[tuple[tuple[str, ...], str, list[str]]]:
    """For every key of every schema: what it takes to have it, its name, and values that it does not allow."""
    for path, schema in SCHEMAS.items():
        group = {"train": "", "logger/tensorboard": "logger.tensorboard.", "logger/wandb": "logger.wandb.",
                 "network/cnn": "network.backbone.", "network/transformer": "network.backbone."}  # fmt: skip
        for entry in fields(schema):
            key = f"{group.get(path, path.split('/')[0] + '.')}{entry.name}"
            yield CHOOSE.get(path, ()), key, wrong_values(key, str(entry.type), entry.metadata.get("rule"))


def values() -> Iterator[Bad]:
    """Of every key one of its wrong values: another for each key."""
    for turn, (choices, key, wrong) in enumerate(keys()):
        value = wrong[turn % len(wrong)]
        yield Bad(f"{' '.join(choices)} {key}={value}".strip().replace("''", "\"''\""), key)


# Configurations that were saved, and then changed


def rewritten(change: Callable[[str], str | bytes]) -> Callable[[Path], None]:
    """What changes the text of a run's configuration."""

    def rewrite(run: Path) -> None:
        path = run / ".hydra" / "config.yaml"
        before = path.read_text()
        after = change(before)
        assert after != before, "the change has no effect"
        path.write_bytes(after if isinstance(after, bytes) else after.replace("@/", f"{run.parent}/").encode())

    return rewrite


def line(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(f"{old}\n", new, 1)


BOMB = "a: &a [x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(8))
FILE = "config.yaml"
# What is done to the text, and what each line says.
CONFIGURATIONS: dict[str, tuple[Callable[[str], str | bytes], str]] = {
    "empty": (lambda text: "", FILE),
    "a list": (lambda text: "- 1\n- 2\n", FILE),
    "a scalar": (lambda text: "hello\n", "hello: there is no such key"),
    "a number": (lambda text: "5\n", FILE),
    "another program's": (lambda text: "name: something\nversion: 2\n", "name: there is no such key"),
    "broken": (lambda text: text + "x: [1\n", FILE),
    "a tab": (lambda text: text + "x:\n\ty: 1\n", FILE),
    "binary": (lambda text: bytes(range(256)), FILE),
    "UTF-16 without its mark": (lambda text: text.encode("utf-16-le"), FILE),
    "Latin-1": (lambda text: line("seed: 0", "seed: ä\n")(text).encode("latin-1"), FILE),
    "a part": (lambda text: text[: text.index("gamma") + 3], FILE),
    "two documents": (lambda text: f"{text}---\n{text}", FILE),
    "a key twice": (lambda text: text + "seed: 1\n", "seed"),
    "an undefined alias": (lambda text: text + "x: *nothing\n", "nothing"),
    "python": (lambda text: text + "x: !!python/object/apply:os.system ['touch @/proof']\n", FILE),
    "a bomb": (lambda text: text + BOMB, "a: there is no such key"),
    "deep": (lambda text: text + f"x: {'[' * 3000}{']' * 3000}\n", FILE),
    "no seed": (line("seed: 0", ""), "seed"),
    "no key": (line("  gamma: 0.99", ""), "algo.gamma"),
    "no group": (lambda text: text.replace("reward:\n", "rewards:\n"), "reward"),
    "no target": (line("  _target_: minerva.algos.ppo.PPO", ""), "algo._target_"),
    "a key more": (lambda text: text + "more: 1\n", "more"),
    "a key more in a group": (line("  gamma: 0.99", "  gamma: 0.99\n  more: 1\n"), "algo.more"),
    "a word": (line("  gamma: 0.99", "  gamma: high\n"), "algo.gamma"),
    "a list for a number": (line("  gamma: 0.99", "  gamma: [0.9]\n"), "algo.gamma"),
    "not a number": (line("  gamma: 0.99", "  gamma: .nan\n"), "algo.gamma=nan"),
    "infinite": (line("  learning_rate: 0.001", "  learning_rate: .inf\n"), "algo.learning_rate=inf"),
    "a date": (line("seed: 0", "seed: 2020-01-01\n"), "seed"),
    "a null": (line("seed: 0", "seed: null\n"), "seed"),
    "a key that is a number": (line("  kwargs: {}", "  kwargs: {5: 1}\n"), "env.kwargs"),
    "a group that is a number": (lambda text: text.replace("logger: {}", "logger: 5"), "logger"),
    "a group that is a list": (lambda text: text.replace("logger: {}", "logger: [tensorboard]"), "logger"),
    "itself": (line("seed: 0", "seed: ${seed}\n"), ": Recursive interpolation detected"),
    "a missing interpolation": (line("seed: 0", "seed: ${nothing}\n"), "nothing"),
    "an unknown resolver": (line("seed: 0", "seed: ${nothing:1}\n"), "nothing"),
    "an environment variable": (line("seed: 0", "seed: ${oc.env:NOT_SET}\n"), "NOT_SET"),
    "a broken interpolation": (line("seed: 0", "seed: '${'\n"), "seed"),
    "os.system": (line("  _target_: minerva.algos.ppo.PPO", "  _target_: os.system\n"), "algo._target_=os.system"),
    "builtins.eval": (
        line("  _target_: minerva.envs.make.make", "  _target_: builtins.eval\n"),
        "env._target_=builtins.eval",
    ),
    "an alias of os.system": (
        line("  _target_: minerva.envs.make.make", "  _target_: minerva.config.os.system\n"),
        "env._target_=minerva.config.os",
    ),
    "torch.load": (
        line("  _target_: minerva.trainer.Trainer", "  _target_: torch.load\n"),
        "trainer._target_=torch.load",
    ),
    "a target of a logger": (
        lambda text: text.replace("logger: {}", "logger: {x: {_target_: os.system}}"),
        "logger.x._target_=os.system",
    ),
    "a module": (line("  id: CartPole-v1", "  id: os:X-v0\n"), "env.id=os:X-v0: imports code"),
    "a module within values": (line("  kwargs: {}", "  kwargs: {env: 'os:X-v0'}\n"), "os:X-v0: imports code"),
    "Hydra's settings": (lambda text: f"hydra: {{run: {{dir: '@/proof'}}}}\n{text}", FILE),
    "defaults": (lambda text: f"defaults: [evil, _self_]\n{text}", FILE),
    "another package": (lambda text: f"# @package hydra\n{text}", FILE),
}
# Those that make a run something that cannot be gone on with; of the others only what identifies the run is of interest then.
TELLING = (
    "empty",
    "a list",
    "broken",
    "binary",
    "deep",
    "no seed",
    "no key",
    "no group",
    "a word",
    "itself",
    "a missing interpolation",
    "os.system",
)
# Ways to use what a run left behind.
USES = {
    "train": "train.py -cp @/run/.hydra -cn config hydra.run.dir=@/again",
    "evaluate": "scripts/evaluate.py @/run --episodes 1",
    "reproduce": "scripts/reproduce.py @/run",
    "resume": f"{TINY} hydra.run.dir=run",
}


def configurations() -> Iterator[Bad]:
    """Each used to train, and to score or to repeat; some to go on with."""
    for turn, (name, (change, says)) in enumerate(CONFIGURATIONS.items()):
        if name in ("Hydra's settings", "defaults", "another package"):
            yield Bad(USES["train"], f"{FILE}: has ", rewritten(change), name=f"configuration: {name}, train")
            continue
        for use in ("train", ("evaluate", "reproduce")[turn % 2], *(["resume"] if name in TELLING else [])):
            yield Bad(USES[use], says, rewritten(change), use == "evaluate", name=f"configuration: {name}, {use}")
    for use in ("evaluate", "reproduce"):
        yield Bad(
            USES[use],
            "not a run directory",
            lambda run: shutil.rmtree(run / ".hydra"),
            use == "evaluate",
            name=f"no configuration, {use}",
        )
        yield Bad(f"scripts/{use}.py @/nowhere", "/nowhere", torch=use == "evaluate")
        yield Bad(f"scripts/{use}.py /dev/null", "/dev/null", torch=use == "evaluate")


# Checkpoints


def damaged(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """What changes a run's last checkpoint, and takes away the one before, which would be used in its place."""

    def damage(run: Path) -> None:
        (run / "checkpoints" / "previous.pt").unlink()
        change(run / "checkpoints" / "last.pt")

    return damage


def bytes_of(change: Callable[[bytes], bytes]) -> Callable[[Path], Any]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def content(change: Callable[[Any], Any]) -> Callable[[Path], Any]:
    return lambda path: torch.save(change(torch.load(path, weights_only=True)), path)


def flipped(which: int) -> Callable[[Path], None]:
    """One bit, in the middle of one of the file's parts; of the random numbers it is the longest."""

    def flip(path: Path) -> None:
        with zipfile.ZipFile(path) as file:
            part = file.read(sorted(file.infolist(), key=lambda info: info.file_size)[which])
        data = bytearray(path.read_bytes())
        assert data.count(part) == 1
        data[data.find(part) + len(part) // 2] ^= 16
        path.write_bytes(data)

    return flip


def archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("hello.txt", "hello")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere.pt")


def without(*names: str) -> Callable[[Any], Any]:
    """The state without one of its entries."""

    def remove(state: Any) -> Any:
        inner = state
        for name in names[:-1]:
            inner = inner[name]
        del inner[names[-1]]
        return state

    return remove


# What is done to the file. A run goes on, and is scored, with neither of these.
CHECKPOINTS: dict[str, Callable[[Path], Any]] = {
    "empty": bytes_of(lambda data: b""),
    **{
        f"{share:.0%} of it": bytes_of(lambda data, share=share: data[: int(len(data) * share)])
        for share in (0.001, 0.1, 0.5, 0.9, 0.999)
    },
    "a bit of the random numbers": flipped(-1),
    "a bit of the pickle": flipped(-2),
    "a bit of the weights": flipped(-4),
    "its end twice": bytes_of(lambda data: data[len(data) // 2 :] * 2),
    "text": bytes_of(lambda data: b"hello, this is no checkpoint\n"),
    "zeros": bytes_of(lambda data: bytes(len(data))),
    "a zip of something else": archive,
    "a directory": folder,
    "malicious": content(lambda state: state | {"evil": Malicious(Path("proof"))}),
    "malicious, without an archive": lambda path: torch.save(
        Malicious(Path("proof")), path, _use_new_zipfile_serialization=False
    ),
    "another program's": content(lambda state: {"weights": torch.zeros(3)}),
    "a tensor": content(lambda state: torch.zeros(3)),
    "a list": content(lambda state: [1, 2]),
    "no step": content(without("step")),
    "no state": content(without("state")),
    "no algo": content(without("state", "algo")),
    "no network": content(without("state", "algo", "network")),
    "no weight": content(without("state", "algo", "network", "policy_head.logits.weight")),
    "a word for the step": content(lambda state: state | {"step": "x"}),
    "None for the step": content(lambda state: state | {"step": None}),
    "a tensor for the step": content(lambda state: state | {"step": torch.ones(2)}),
    "a list for the state": content(lambda state: state | {"state": [1]}),
    "None for the state": content(lambda state: state | {"state": None}),
    "a word for the identity": content(lambda state: state | {"identity": "x"}),
    "None for the identity": content(lambda state: state | {"identity": None}),
}

# Every entry of a checkpoint's state, of PPO on a discrete task.
NETWORK = [
    *(f"normalizer.{name}" for name in ("mean", "variance", "count", "shift", "scale")),
    *(f"{body}.layers.0.{name}" for body in ("policy_body", "value_body") for name in ("weight", "bias")),
    *(f"policy_head.logits.{name}" for name in ("weight", "bias")),
    *(f"value_head.{name}" for name in ("mean", "square", "std", "shift", "weight", "linear.weight", "linear.bias")),
]
ENTRIES: list[tuple[str, ...]] = [
    ("algo",),
    ("algo", "network"),
    *(("algo", "network", name) for name in NETWORK),
    ("algo", "learner"),
    *(("algo", "learner", name) for name in ("mean", "square", "rates", "steps")),
    ("collector",),
    ("collector", "env"),
    *(("collector", "env", name) for name in ("seed", "episode", "actions")),
    ("collector", "reward_transform"),
    *(("collector", "reward_transform", name) for name in ("return", "moments")),
    *(("collector", name) for name in ("obs", "episode_return", "episode_length", "cut", "finished")),
    ("clock",),
    *(("clock", name) for name in ("step", "skipped", "score", "best")),
    *(("clock", f"{name}_seconds") for name in ("env", "rollout", "update", "eval", "save")),
    ("random",),
    ("random", "cpu"),
]
WRONG = {"a word": "x", "None": None, "an empty dict": {}, "another shape": torch.zeros(3, 5, 7)}


def replaced(names: tuple[str, ...], value: Any) -> Callable[[Any], Any]:
    """The state with ``value`` in place of one of its entries."""

    def replace(state: Any) -> Any:
        inner = state["state"]
        for name in names[:-1]:
            inner = inner[name]
        assert names[-1] in inner
        inner[names[-1]] = value
        return state

    return replace


def checkpoints() -> Iterator[Bad]:
    """Each way to damage one, gone on with and scored; and each of its entries in one of the wrong ways, in turn."""
    for name, change in CHECKPOINTS.items():
        for use in ("resume", "evaluate"):
            if (name, use) != ("None for the identity", "evaluate"):
                yield Bad(USES[use], "checkpoints/last.pt: ", damaged(change), True, name=f"checkpoint: {name}, {use}")
    for turn, names in enumerate(ENTRIES):
        wrong = list(WRONG)[turn % len(WRONG)]
        use = "evaluate" if names[0] == "algo" and turn % 3 == 0 else "resume"
        change = content(replaced(names, WRONG[wrong]))
        yield Bad(
            USES[use],
            "checkpoints/last.pt: ",
            damaged(change),
            True,
            name=f"checkpoint: {wrong} for {'.'.join(names)}, {use}",
        )
    yield Bad(
        USES["evaluate"],
        "checkpoints/last.pt: there is no such",
        damaged(dangling),
        True,
        name="checkpoint: a dangling link",
    )
    yield Bad(
        f"{USES['evaluate']} --checkpoint failed", "failed.pt: there is no such checkpoint", lambda run: None, True
    )


def runs() -> Iterator[Bad]:
    """What does not go with what a run directory holds."""
    for override in (
        "seed=1",
        "algo.gamma=0.9",
        "env.num_envs=1",
        "network.activation=relu",
        "compile=True",
        "algo=vmpo",
    ):
        key = override.partition("=")[0]
        says = "run was begun with algo." if override == "algo=vmpo" else f"{override}: run was begun with {key}="
        yield Bad(f"{USES['resume']} {override}", says, lambda run: None, name=f"resume: {override}")
    for name, change, says in (
        ("no metrics", lambda run: (run / "metrics.csv").unlink(), "there are no rows"),
        ("other metrics", lambda run: (run / "metrics.csv").write_text("hello\nyou\n"), "metrics.csv"),
        ("binary metrics", lambda run: (run / "metrics.csv").write_bytes(bytes(range(256)) * 9), "metrics.csv"),
        ("broken run.json", lambda run: (run / "run.json").write_text("{"), "run.json"),
        ("other run.json", lambda run: (run / "run.json").write_text("[1]"), "run.json"),
        ("a damaged checkpoint", damaged(bytes_of(lambda data: data[:99])), "last.pt"),
        ("a checkpoint without a network", damaged(content(without("state", "algo", "network"))), "last.pt"),
    ):
        yield Bad(USES["reproduce"], says, change, "checkpoint" in name, name=f"reproduce: {name}")
    for arguments, says in (
        ("--steps 1", "there are no rows to step 1"),
        ("--steps -5", "there are no rows to step -5"),
        ("--out @/run", "there is a run already"),
        ("--out /dev/null", "--out=/dev/null: /dev/null is a file"),
    ):
        yield Bad(f"{USES['reproduce']} {arguments}", says, lambda run: None)


CASES: list[Bad] = [*commands(), *values(), *configurations(), *checkpoints(), *runs()]
