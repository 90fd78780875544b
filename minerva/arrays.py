"""A network's policy as a NumPy function: for a handful of observations, the cheapest there is.

To run a layer of 64 x 64, PyTorch needs twenty times as long as its arithmetic takes, and leaves the caches to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def _log_softmax(x: np.ndarray, dim: int, _: bool) -> np.ndarray:
    x = x - x.max(dim, keepdims=True)
    return x - np.log(np.exp(x).sum(dim, keepdims=True))


def _split(x: np.ndarray, size: int, dim: int = 0) -> list[np.ndarray]:
    before = (slice(None),) * (dim % x.ndim)
    return [x[(*before, slice(low, low + size))] for low in range(0, x.shape[dim], size)]


# The operations that policies are made of. Dimensions and scalars are Python's.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "aten._log_softmax.default": _log_softmax,
    "aten._to_copy.default": lambda x, dtype: x.astype(str(dtype).removeprefix("torch.")),
    "aten.abs.default": np.abs,
    "aten.add.Tensor": np.add,
    "aten.addmm.default": lambda bias, x, weight: x @ weight + bias,
    "aten.alias.default": lambda x: x,
    "aten.argmax.default": lambda x, dim: x.argmax(dim),
    "aten.cat.default": lambda parts, dim=0: np.concatenate(parts, dim),
    "aten.clamp.default": lambda x, low, high=np.inf: np.minimum(np.maximum(x, low), high),
    "aten.detach.default": lambda x: x,
    "aten.div.Tensor": np.divide,
    "aten.exp.default": np.exp,
    "aten.expand.default": lambda x, shape: np.broadcast_to(x, shape),
    "aten.log.default": np.log,
    "aten.log1p.default": np.log1p,
    "aten.mm.default": np.matmul,
    "aten.mul.Tensor": np.multiply,
    "aten.neg.default": np.negative,
    "aten.relu.default": lambda x: np.maximum(x, 0),
    "aten.sign.default": np.sign,
    "aten.slice.Tensor": lambda x, dim, low, high: x[(slice(None),) * (dim % x.ndim) + (slice(low, high),)],
    "aten.sub.Tensor": np.subtract,
    "aten.t.default": lambda x: np.ascontiguousarray(x.T),  # products with a view take twice as long
    "aten.tanh.default": np.tanh,
    "aten.split.Tensor": _split,
    "aten.view.default": lambda x, shape: x.reshape(shape),
}


# Observations [N, ...] and noise [N, ...], if there is to be any, to what Decision holds.
Act = Callable[..., tuple[Any, ...]]


def acting(actor: Any, device: torch.device, *example: Tensor) -> Callable[[], Act]:
    """What makes ``actor.act`` a function of arrays; in NumPy, where all that it is made of is known here, else in PyTorch.

    It is to be made anew when the actor has learned.

    Args:
        actor: of an :class:`minerva.types.Algorithm`.
        device: where it is.
        example: observations and, if there is to be any, noise of the shapes that will always be given.
    """

    def act(*args: Any) -> tuple[Any, ...]:
        with torch.no_grad():
            action, *rest = actor.act(*(torch.as_tensor(arg, device=device) for arg in args))
        return action.cpu().numpy(), *rest

    module: Any = actor if device.type == "cpu" and isinstance(actor, torch.nn.Module) else None
    return (module and numpy_function(module.act, module, example)) or (lambda: act)


class Record(TorchDispatchMode):
    """Keeps the operations that are done within it: name, arguments, results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, Sequence[Any], dict[str, Any], Any]] = []

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else PyTorch's compiler is imported for it, which takes a second

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append((str(func), args, kwargs or {}, result))
        return result


def numpy_function(
    function: Callable[..., Any], module: torch.nn.Module, example: Sequence[Tensor]
) -> Callable[[], Act] | None:
    """``function`` of tensors as one of arrays; None where it has an operation that is not known here.

    Args:
        function: of tensors, and of ``module``; gives a tuple of tensors.
        module: what else it reads; on the CPU.
        example: arguments of the shapes that it will always be called with.

    Returns:
        What makes the function. It is to be made again when the module has learned: what does not depend on its arguments
        is computed then.
    """
    with torch.no_grad(), Record() as record:
        results = function(*example)
    held = [*module.parameters(), *module.buffers()]
    weights, inputs = [f"w{i}" for i in range(len(held))], [f"x{i}" for i in range(len(example))]
    # By the tensors' identities, which the record keeps from being used again.
    names = dict(zip(map(id, (*held, *example)), (*weights, *inputs), strict=True))
    values: dict[str, Any] = {"torch": torch}
    before, within, varying = [], [], set(inputs)

    def render(value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(render, value))}]"
        if not isinstance(value, Tensor):
            return repr(value)
        if id(value) not in names:  # held elsewhere
            names[id(value)] = name = f"c{len(names)}"
            values[name] = value.numpy()
        return names[id(value)]

    parts: dict[str, Sequence[Tensor]] = {}  # what was put together, by what became of it
    for number, (operation, args, kwargs, result) in enumerate(record.calls):
        if operation not in OPERATIONS:
            return None
        together = parts.get(names.get(id(args[0]), "")) if operation == "aten.split.Tensor" else None
        if together and [part.shape for part in together] == [part.shape for part in result]:
            # Taken apart again, these are what they were: a deviation that does not vary with the observation still does not.
            names.update(zip(map(id, result), map(render, together), strict=True))
            continue
        values[f"f{number}"] = OPERATIONS[operation]
        arguments = [render(value) for value in args] + [f"{key}={value!r}" for key, value in kwargs.items()]
        made = list(result) if isinstance(result, list | tuple) else [result]
        targets = [f"v{number}_{i}" for i in range(len(made))]
        if operation == "aten.cat.default":
            parts[targets[0]] = args[0]
        names.update(zip(map(id, made), targets, strict=True))
        several = ", " if isinstance(result, list | tuple) else ""  # one of several too
        line = f"{', '.join(targets)}{several} = f{number}({', '.join(arguments)})"
        if any(name in varying for value in arguments for name in value.strip("[]").split(", ")):
            varying.update(targets)
            within.append(f"        {line}")
        else:
            before.append(f"    {line}")
    source = [
        f"def prepare({', '.join(weights)}):",
        *before,
        f"    def run({', '.join(inputs)}):",
        *within,
        f"        return {', '.join(map(render, results))},",
        "    return run",
    ]
    exec("\n".join(source), values)

    def prepare() -> Act:
        act: Act = values["prepare"](*(tensor.detach().numpy() for tensor in held))
        return act

    if not _agree(prepare, example, results):
        return None
    _one_thread()
    return prepare


def _one_thread() -> None:
    """A second thread of NumPy's would wait for its next product by spinning, and starve the environments' and PyTorch's."""
    for library in ThreadpoolController().select(internal_api="openblas").lib_controllers:
        if "numpy" in library.filepath:
            library.set_num_threads(1)


def _agree(prepare: Callable[[], Act], example: Sequence[Tensor], expected: Sequence[Tensor]) -> bool:
    """Whether the function gives ``expected`` for ``example``: an operation may be used in a way that is not known here."""
    try:
        results = prepare()(*(tensor.numpy() for tensor in example))
    except Exception:  # whatever NumPy says of it
        return False
    return all(
        (ours.shape, ours.dtype) == (theirs.numpy().shape, theirs.numpy().dtype)
        and np.allclose(ours, theirs.numpy(), 1e-4, 1e-5)
        for ours, theirs in zip(results, expected, strict=True)
    )
