"""Functions of tensors, compiled ahead of time for this CPU and kept for the runs to come; or captured as a graph of a GPU.

PyTorch takes a few microseconds to find and start each operation, and a small network's step is hundreds of them. Compiled, they
are a few loops in one library, which is called once a step.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)

COMPILER = os.environ.get("CXX", "g++")
OPTIONS = {
    "aot_inductor.precompile_headers": False,
    "aot_inductor.enable_line_tables": False,
    # Else each kind of vector instruction that the CPU says it has is tried out first, for seconds.
    "cpp.vec_isa_ok": True,
    # By way of the exponential, which is three times as fast, and as exact as a sum of float32 is.
    "cpp.use_decompose_tanh": True,
}

Compiled = Callable[[list[Tensor]], list[Tensor]]


def compile_function(function: Callable[..., tuple[Tensor, ...]], example: Sequence[Tensor], name: str) -> Compiled:
    """``function`` as a library.

    Args:
        function: of tensors alone; may change them in place. What else it reads is compiled in as it is now.
        example: arguments of the shapes, dtypes and strides that it will always be called with; they are not changed.
        name: for messages.

    Returns:
        What takes the arguments as a list, and returns the results as one.
    """
    graph = _trace(function, example)
    library = _cache() / f"{_key(graph, example)}.so"
    if not library.exists():
        log.info("compiling %s, once for this machine and these sizes", name)
        _build(graph, example, library)
    # It keeps the loaded library alive.
    runner = torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    run: Compiled = runner.run
    return run


def capture_function(function: Callable[..., tuple[Tensor, ...]], example: Sequence[Tensor], fixed: int) -> Compiled:
    """``function`` as a CUDA graph: all of its kernels are started at once.

    Args:
        function: of tensors alone, on one GPU; may change the first of them in place.
        example: arguments of the shapes that it will always be called with; they are not changed.
        fixed: so many of the first arguments are the same tensors in each call; the others are copied to where the graph reads.

    Returns:
        What takes the arguments as a list, and returns the results as one.
    """
    held = [*example[:fixed], *(tensor.clone() for tensor in example[fixed:])]
    before = [tensor.clone() for tensor in example[:fixed]]
    with torch.cuda.device(example[0].device):
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # what is set up at first use is not to be in the graph
                function(*held)
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(graph):
            results = list(function(*held))
    for tensor, old in zip(held, before, strict=False):
        tensor.copy_(old)

    def run(tensors: list[Tensor]) -> list[Tensor]:
        for mine, given in zip(held[fixed:], tensors[fixed:], strict=True):
            mine.copy_(given)
        with torch.cuda.device(held[0].device):
            graph.replay()
        return [result.clone() for result in results]

    return run


def _trace(function: Callable[..., tuple[Tensor, ...]], example: Sequence[Tensor]) -> torch.fx.GraphModule:
    """``function`` as a graph of operations, with its changes in place at the end."""
    from torch.func import functionalize
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(functionalize(function, remove="mutations"), tracing_mode="fake")(*example)


def _key(graph: torch.fx.GraphModule, example: Sequence[Tensor]) -> str:
    """What a library depends on: the operations, their sizes, this machine and its compiler."""
    digest = hashlib.sha256()
    facts = [
        str(graph.graph),
        *(f"{node.name} {node.meta.get('tensor_meta')}" for node in graph.graph.nodes),
        *(f"{tensor.shape} {tensor.dtype} {tensor.stride()}" for tensor in example),
        torch.__version__,
        str(torch.get_num_threads()),
        torch.backends.cpu.get_cpu_capability(),
        str(OPTIONS),
        subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=False).stdout,
        platform.machine(),
        _cpu(),
    ]
    for fact in facts:
        digest.update(fact.encode() + b"\0")
    for constant in (*graph.buffers(), *graph.parameters()):
        digest.update(constant.detach().numpy().tobytes())
    return digest.hexdigest()


def _cpu() -> str:
    """The kind of the CPU, since a library uses what this one has."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else [platform.processor()]
    return next((line for line in lines if line.startswith(("flags", "Features"))), lines[0])


def _cache() -> Path:
    """Where libraries are kept; the user's own, since what is in it is executed."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "minerva"
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return home


def _build(graph: torch.fx.GraphModule, example: Sequence[Tensor], library: Path) -> None:
    import torch._inductor

    with tempfile.TemporaryDirectory(dir=library.parent) as folder, _quiet(folder):
        made: Any = torch._inductor.aot_compile(graph, tuple(example), options=dict(OPTIONS))
        os.replace(made, library)


@contextmanager
def _quiet(folder: str) -> Iterator[None]:
    """Keep the compiler's files in ``folder`` and its remarks to itself."""
    before = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    level = logging.getLogger("torch._inductor").level
    logging.getLogger("torch._inductor").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch._inductor").setLevel(level)
        if before is None:
            del os.environ["TORCHINDUCTOR_CACHE_DIR"]
        else:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = before


def swapped(module: torch.nn.Module, tensors: Mapping[str, Tensor]) -> Any:
    """A context in which the parameters and buffers of ``module`` are those of ``tensors``, by name."""
    from torch.nn.utils.stateless import _reparametrize_module

    return _reparametrize_module(module, dict(tensors))
