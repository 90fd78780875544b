"""A network's policy as a NumPy function: for a handful of observations, the cheapest there is.

To run a layer of 64 x 64, PyTorch needs twenty times as long as its arithmetic takes, and leaves the caches to itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from minerva.compiled import swapped


def _log_softmax(x: np.ndarray, dim: int, _: bool) -> np.ndarray:
    x = x - x.max(dim, keepdims=True)
    return x - np.log(np.exp(x).sum(dim, keepdims=True))


def _split(x: np.ndarray, size: int, dim: int = 0) -> list[np.ndarray]:
    before = (slice(None),) * (dim % x.ndim)
    return [x[(*before, slice(low, low + size))] for low in range(0, x.shape[dim], size)]


# The operations that policies are made of. Dimensions and scalars are Python's.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "<built-in function getitem>": operator.getitem,
    "aten._log_softmax.default": _log_softmax,
    "aten._to_copy.default": lambda x, dtype: x.astype(str(dtype).removeprefix("torch.")),
    "aten.abs.default": np.abs,
    "aten.add.Tensor": np.add,
    "aten.addmm.default": lambda bias, x, weight: x @ weight + bias,
    "aten.alias.default": lambda x: x,
    "aten.argmax.default": lambda x, dim: x.argmax(dim),
    "aten.cat.default": lambda parts, dim=0: np.concatenate(parts, dim),
    "aten.copysign.Tensor": np.copysign,
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
    "aten.t.default": lambda x: np.ascontiguousarray(
        x.T
    ),  # made once a rollout; products with a view take twice as long
    "aten.tanh.default": np.tanh,
    "aten.split.Tensor": _split,
    "aten.view.default": lambda x, shape: x.reshape(shape),
}


Act = Callable[..., tuple[np.ndarray, ...]]


def numpy_function(
    function: Callable[..., Sequence[Tensor]], module: torch.nn.Module, example: Sequence[Tensor]
) -> Callable[[], Act] | None:
    """``function`` of tensors as one of arrays; None where it has an operation that is not known here.

    Args:
        function: of tensors, and of ``module``.
        module: what else it reads; on the CPU.
        example: arguments of the shapes that it will always be called with.

    Returns:
        What makes the function. It is to be made again when the module has learned: what does not depend on its arguments
        is computed then.
    """
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}

    def traced(tensors: list[Tensor], *args: Tensor) -> tuple[Tensor, ...]:
        with swapped(module, dict(zip(held, tensors, strict=True))):
            return tuple(function(*args))

    with torch.no_grad():
        graph = make_fx(functionalize(traced), tracing_mode="fake")([*held.values()], *example).graph
    _undo_cat(graph)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    weights, inputs = placeholders[: len(held)], placeholders[len(held) :]
    names: dict[str, Any] = {"torch": torch}
    before, within, varying, outputs = [], [], set(inputs), ""
    for node in graph.nodes:
        if node.op == "output":
            outputs = ", ".join(map(str, node.args[0]))
        elif node.op != "placeholder":
            if str(node.target) not in OPERATIONS:
                return None
            names[f"f_{node}"] = OPERATIONS[str(node.target)]
            arguments = ", ".join([*map(repr, node.args), *(f"{key}={value!r}" for key, value in node.kwargs.items())])
            line = f"{node} = f_{node}({arguments})"
            if varying.isdisjoint(node.all_input_nodes):
                before.append(f"    {line}")
            else:
                varying.add(node)
                within.append(f"        {line}")
    source = [
        f"def prepare({', '.join(map(str, weights))}):",
        *before,
        f"    def run({', '.join(map(str, inputs))}):",
        *within,
        f"        return {outputs},",
        "    return run",
    ]
    exec("\n".join(source), names)

    def prepare() -> Act:
        act: Act = names["prepare"](*(tensor.detach().numpy() for tensor in held.values()))
        return act

    # A second thread of NumPy's would wait for its next product by spinning, and starve the environments' and PyTorch's.
    threadpool_limits(1, "blas")
    return prepare if _agree(prepare, function, example) else None


def _undo_cat(graph: torch.fx.Graph) -> None:
    """Take a part that is split off what was put together from where it was before: it may not vary, as a deviation does not."""
    for node in graph.nodes:
        if node.target is not operator.getitem or str(node.args[0].target) != "aten.split.Tensor":
            continue
        (whole, size, *dim), place = node.args[0].args, node.args[1]
        dim = dim or [0]
        if str(whole.target) == "aten.cat.default" and [*whole.args[1:], 0][0] == dim[0]:
            parts = whole.args[0]
            if all(part.meta["val"].shape[dim[0]] == size for part in parts):
                node.replace_all_uses_with(parts[place])
    graph.eliminate_dead_code()


def _agree(prepare: Callable[[], Act], function: Callable[..., Sequence[Tensor]], example: Sequence[Tensor]) -> bool:
    """Whether the two give the same for ``example``: an operation may be used in a way that is not known here."""
    with torch.no_grad():
        expected = function(*example)
    try:
        results = prepare()(*(tensor.numpy() for tensor in example))
    except Exception:  # whatever NumPy says of it
        return False
    return all(np.allclose(ours, theirs.numpy(), 1e-4, 1e-5) for ours, theirs in zip(results, expected, strict=True))
