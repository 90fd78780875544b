"""The type and the range of every configuration key. Nothing here imports torch, so that mistakes are found at once.

The values and what they mean are in ``conf/``: a schema says what may stand there, the YAML what does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any

from minerva.errors import UserError

MISSING: Any = "???"  # OmegaConf's word for a value that must be given
AUTO = "auto"  # settled when a run begins, see minerva/auto.py
LARGEST = 1e37  # of what has no other bound: well within float32, and no infinity
LONG = 1e9  # seconds; much more is beyond Python's clocks
SCHEDULES = ("constant", "linear", "cosine", "warmup_cosine")
ACTIVATIONS = ("tanh", "relu", "elu", "gelu", "silu", "leaky_relu")
MANY = 65_536  # of what takes memory for each: environments, units of a layer


@dataclass(frozen=True)
class Rule:
    """What a value must satisfy beyond its type."""

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    choices: tuple[Any, ...] = ()
    auto: bool = False
    names: bool = False

    def allows(self, value: Any) -> bool:
        """Whether ``value`` satisfies the rule; None always does, but for what is true or false."""
        if isinstance(value, list | dict):
            return False
        if self.auto:
            number = isinstance(value, int) and not isinstance(value, bool)
            return value == AUTO or (number and replace(self, auto=False).allows(value))
        if self.names and (isinstance(value, bool) or not isinstance(value, int)):
            return isinstance(value, str) and value != ""
        if value is None:
            return not any(isinstance(choice, bool) for choice in self.choices)
        if self.choices:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)  # 1 is not true
        above = self.low is None or (value > self.low if self.open_low else value >= self.low)
        return above and (self.high is None or value <= self.high)  # False for NaN

    def __str__(self) -> str:
        if self.auto:
            return f"{AUTO}, or {replace(self, auto=False)}"
        if self.names:
            return f"a name, or a whole number {replace(self, names=False)}"
        if self.choices:
            return "one of " + ", ".join(str(choice).lower() for choice in self.choices)
        if self.high is not None and self.high < LARGEST:
            return f"{'above' if self.open_low else 'from'} {self.low:.10g} to {self.high:.10g}"
        return f"{'above' if self.open_low else 'at least'} {self.low:g}"

    def refusal(self, value: Any) -> str:
        """What is allowed instead of ``value``."""
        too_large = isinstance(value, int | float) and value > LARGEST
        return f"allowed is {self}" + (f", and at most {LARGEST:g}" if too_large and self.high == LARGEST else "")


def between(low: float, high: float) -> Any:
    """A number in [low, high]."""
    return field(default=MISSING, metadata={"rule": Rule(low, high)})


def above(low: float, high: float | None = None) -> Any:
    """A finite number in (low, high]."""
    return field(default=MISSING, metadata={"rule": Rule(low, high or LARGEST, open_low=True)})


def at_least(low: float) -> Any:
    """A finite number >= low."""
    return field(default=MISSING, metadata={"rule": Rule(low, LARGEST)})


def one_of(*choices: str | bool) -> Any:
    """One of some words."""
    return field(default=MISSING, metadata={"rule": Rule(choices=choices)})


def name_or_between(low: int, high: int) -> Any:
    """A whole number in [low, high], or a name."""
    return field(default=MISSING, metadata={"rule": Rule(low, high, names=True)})


def auto_or_between(low: int, high: int) -> Any:
    """A whole number in [low, high], or the word ``auto``."""
    return field(default=MISSING, metadata={"rule": Rule(low, high, auto=True)})


@dataclass
class PPO:
    """Of :class:`minerva.algos.ppo.PPO`."""

    _target_: str = "minerva.algos.ppo.PPO"
    num_steps: int = at_least(1)
    update_epochs: int = at_least(1)
    minibatch_size: int = at_least(1)
    gamma: float = between(0, 1)
    advantage: str = one_of("gae", "returns")
    gae_lambda: float = between(0, 1)
    norm_adv: bool = MISSING
    clip_coef: float = above(0)
    clip_vloss: float | None = above(0)
    ent_coef: float = at_least(0)
    vf_coef: float = at_least(0)
    norm_value: bool = MISSING
    max_grad_norm: float | None = above(0)
    learning_rate: float = above(0)
    value_learning_rate: float = above(0)
    lr_schedule: str = one_of(*SCHEDULES, "adaptive")
    clip_schedule: str = one_of(*SCHEDULES)
    ent_schedule: str = one_of(*SCHEDULES)
    warmup: float = between(0, 0.99)
    adaptive_kl: float = above(0)
    adaptive_kl_final: float = above(0)
    adaptive_factor: float = above(1)
    adaptive_lr_min: float = above(0)
    adaptive_lr_max: float = above(0)
    target_kl: float | None = above(0)
    optimizer: str = one_of("adam", "adamw", "sgd")
    adam_eps: float = above(0)
    weight_decay: float = at_least(0)


@dataclass
class VMPO:
    """Of :class:`minerva.algos.vmpo.VMPO`."""

    _target_: str = "minerva.algos.vmpo.VMPO"
    num_steps: int = at_least(1)
    m_steps: int = at_least(1)
    minibatch_size: int | None = at_least(1)
    target_period: int = at_least(1)
    gamma: float = between(0, 1)
    advantage: str = one_of("gae", "returns", "dae")
    gae_lambda: float = between(0, 1)
    norm_adv: bool = MISSING
    topk_fraction: float = above(0, 1)
    temperature: str = one_of("solve", "gradient")
    temperature_init: float = at_least(1e-8)
    temperature_lr: float = above(0)
    alpha_init: float = at_least(1e-8)
    alpha_lr: float = above(0)
    epsilon_eta: float = above(0)
    epsilon_mu: float = above(0)
    epsilon_sigma: float = above(0)
    epsilon_kl: float = above(0)
    norm_value: bool = MISSING
    optimizer: str = one_of("adam", "sgd")
    adam_eps: float = above(0)
    learning_rate: float = above(0)
    value_learning_rate: float = above(0)
    lr_schedule: str = one_of(*SCHEDULES)
    warmup: float = between(0, 0.99)
    max_grad_norm: float | None = above(0)
    value_max_grad_norm: float | None = above(0)


@dataclass
class Env:
    """Of :func:`minerva.envs.make.make`."""

    _target_: str = "minerva.envs.make.make"
    id: str = MISSING
    backend: str = one_of("auto", "gymnasium", "envpool")
    allow_different: bool = MISSING
    threads: Any = auto_or_between(1, 1024)
    timeout: float | None = above(0, LONG)
    kwargs: dict[str, Any] = field(default_factory=dict)
    num_envs: int = between(1, MANY)
    max_episode_steps: int | None = at_least(1)
    pixels: bool = MISSING
    pixel_size: int = between(8, 1024)
    camera: Any = name_or_between(-1, MANY)
    action_repeat: int = between(1, 1024)
    frame_stack: Any = auto_or_between(1, 1024)
    stagger: int = at_least(0)


@dataclass
class Reward:
    """Of :class:`minerva.envs.reward.RewardTransform`."""

    _target_: str = "minerva.envs.reward.RewardTransform"
    scale: bool = MISSING
    clip: float | None = above(0)


@dataclass
class ActorCritic:
    """Of :class:`minerva.networks.actor_critic.ActorCritic`."""

    _target_: str = "minerva.networks.actor_critic.ActorCritic"
    backbone: Any = MISSING
    policy_layers: list[int] = between(1, MANY)
    value_layers: list[int] = between(1, MANY)
    shared_encoder: bool = MISSING
    activation: str = one_of(*ACTIVATIONS)
    init: str = one_of("orthogonal", "default")
    layer_norm: bool = MISSING
    head: str = one_of("gaussian", "squashed", "beta")
    initial_std: float = above(0)
    state_dependent_std: bool = MISSING
    std: str = one_of("exp", "softplus")
    std_bounds: list[float] | None = above(0)
    normalize_observations: bool = MISSING
    symlog_observations: bool = MISSING
    observation_clip: float = above(0)
    popart_rate: float = above(0, 1)


@dataclass
class CNN:
    """Of :class:`minerva.networks.cnn.CNN`."""

    _target_: str = "minerva.networks.cnn.CNN"
    channels: list[int] = between(1, MANY)
    kernels: list[int] = between(1, MANY)
    strides: list[int] = between(1, MANY)
    activation: str = one_of(*ACTIVATIONS)


@dataclass
class Transformer:
    """Of :class:`minerva.networks.transformer.Transformer`."""

    _target_: str = "minerva.networks.transformer.Transformer"
    seq_len: int = between(1, 1024)
    d_model: int = between(1, MANY)
    heads: int = between(1, MANY)
    layers: int = between(1, MANY)
    dropout: float = between(0, 0.99)


@dataclass
class Trainer:
    """Of :class:`minerva.trainer.Trainer`."""

    _target_: str = "minerva.trainer.Trainer"
    total_steps: int = at_least(1)
    logs: int = at_least(1)
    evaluations: int = at_least(1)
    eval_episodes: int = between(1, MANY)
    final_eval_episodes: int = between(1, MANY)
    max_eval_steps: int = at_least(1)
    checkpoints: int = at_least(1)
    non_finite: str = one_of("stop", "skip")
    video: bool = one_of(True, False)


@dataclass
class TensorBoard:
    """Of :class:`minerva.loggers.tensorboard.TensorBoardLogger`."""

    _target_: str = "minerva.loggers.tensorboard.TensorBoardLogger"


@dataclass
class WandB:
    """Of :class:`minerva.loggers.wandb.WandBLogger`."""

    _target_: str = "minerva.loggers.wandb.WandBLogger"
    project: str = MISSING
    entity: str | None = MISSING
    group: str | None = MISSING
    tags: list[str] = MISSING
    mode: str = one_of("online", "offline")
    timeout: float = above(0, LONG)


@dataclass
class Train:
    """The whole configuration; what the groups hold is typed by theirs."""

    seed: int = between(0, 2**32 - 1)
    device: str = MISSING
    threads: Any = auto_or_between(1, 1024)
    compile: Any = one_of("auto", True, False)
    amp: str | None = one_of("bf16", "fp16")
    algo: Any = MISSING
    env: Any = MISSING
    reward: Any = MISSING
    network: Any = MISSING
    trainer: Any = MISSING
    logger: dict[str, Any] = field(default_factory=dict)
    sweep_name: str | None = None


# Where each is found in the configuration tree: conf/algo/ppo.yaml begins with /schema/algo/ppo.
SCHEMAS: dict[str, type] = {
    "train": Train,
    "reward": Reward,
    "algo/ppo": PPO,
    "algo/vmpo": VMPO,
    "env/gymnasium": Env,
    "network/actor_critic": ActorCritic,
    "network/cnn": CNN,
    "network/transformer": Transformer,
    "trainer/default": Trainer,
    "logger/tensorboard": TensorBoard,
    "logger/wandb": WandB,
}


def schema_of(node: Mapping[str, Any], group: str) -> type | None:
    """The schema of a configuration node of ``group``, by its ``_target_``; None if it is not one of minerva's."""
    of_group = [schema for path, schema in SCHEMAS.items() if path.partition("/")[0] == group]
    return next((schema for schema in of_group if getattr(schema, "_target_", "") == node.get("_target_")), None)


def broken_rules(schema: type, node: Mapping[str, Any], key: str) -> Iterator[str]:
    """One line for each value of ``node`` that its schema does not allow; ``key`` is where the node stands."""
    for entry in fields(schema):
        if problem := broken_rule(entry, node.get(entry.name)):
            yield f"{key}{entry.name}={node.get(entry.name)}: {problem}"


def broken_rule(entry: Field[Any], value: Any) -> str | None:
    """What is allowed in the place of ``value``, where it is not; ``entry`` is of a schema."""
    rule: Rule | None = entry.metadata.get("rule")
    listed = isinstance(value, list) and str(entry.type).startswith("list")
    elements: list[Any] = value if listed else [value]
    if listed and any(isinstance(element, list | dict) for element in elements):
        return "allowed is a list of plain values"
    return next((rule.refusal(element) for element in elements if rule and not rule.allows(element)), None)


def same_identity(old: Mapping[str, Any], new: Mapping[str, Any], where: str, elsewhere: str = "hydra.run.dir") -> None:
    """Refuse to go on ``where`` a run of another identity was begun; the key ``elsewhere`` chooses another place.

    Raises:
        UserError: naming the first key that differs.
    """
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            raise UserError(
                f"{key}={new.get(key)}: {where} was begun with {key}={old.get(key)}; give that, or another {elsewhere}"
            )


def conflicts(config: Mapping[str, Any]) -> Iterator[str]:
    """One line for each pair of values that cannot go together."""
    algo, env, network, trainer = config["algo"], config["env"], config["network"], config["trainer"]
    rollout = env["num_envs"] * algo["num_steps"]
    size = f"one rollout, env.num_envs={env['num_envs']} x algo.num_steps={algo['num_steps']} = {rollout} steps"
    if trainer["total_steps"] < rollout:
        yield f"trainer.total_steps={trainer['total_steps']}: allowed is at least {size}"
    if algo.get("adaptive_lr_min", 0) > algo.get("adaptive_lr_max", 1):
        yield f"algo.adaptive_lr_min={algo['adaptive_lr_min']}: allowed is at most adaptive_lr_max={algo['adaptive_lr_max']}"
    if algo["_target_"] == PPO._target_ and algo["norm_adv"] and algo["minibatch_size"] == 1:
        yield "algo.minibatch_size=1: allowed is at least 2 with algo.norm_adv=true, for one sample has no deviation"
    if (algo.get("minibatch_size") or 1) > rollout:
        yield f"algo.minibatch_size={algo['minibatch_size']}: allowed is at most {size}"
    if (bounds := network.get("std_bounds")) and (len(bounds) != 2 or bounds[0] >= bounds[1]):
        yield f"network.std_bounds={bounds}: allowed is null, or two numbers of which the first is the smaller"
    if config["amp"] is not None and config["device"] == "cpu":
        yield f"amp={config['amp']}: allowed is null with device=cpu, where it would be slower than float32; or give device=cuda"
    backbone = network.get("backbone") or {}
    lengths = {name: len(backbone[name]) for name in ("channels", "kernels", "strides") if name in backbone}
    if len({*lengths.values()}) > 1:
        yield f"network.backbone.kernels={backbone['kernels']}: allowed are as many as channels={backbone['channels']} and strides={backbone['strides']}"
    if backbone.get("dropout") and config["compile"] is True:
        yield f"compile=true: allowed is false with network.backbone.dropout={backbone['dropout']}, for what is compiled draws no chance"
    if backbone.get("heads") and backbone["d_model"] % backbone["heads"]:
        yield f"network.backbone.heads={backbone['heads']}: allowed is a divisor of network.backbone.d_model={backbone['d_model']}"
    if network.get("shared_encoder") and network["value_layers"] != network["policy_layers"]:
        yield f"network.value_layers={network['value_layers']}: allowed is policy_layers={network['policy_layers']} with network.shared_encoder=true"
