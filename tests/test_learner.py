"""The compiled step against the plain one, and the plain one against torch."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from minerva import learner as learner_module
from minerva.learner import Group, Learner
from tests import test_ppo, test_vmpo

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")


def regression_loss(model: nn.Module) -> Callable[..., Any]:
    def loss(x, y):
        error = (model["scale"]["a"] * model["net"](x).squeeze(-1) - y).square().mean()
        return error, {"error": error, "twice": 2 * error}

    return loss


def regression(optimizer: str, compile: bool, device: str = "cpu", half: bool = False) -> tuple[nn.Module, Learner]:
    torch.manual_seed(0)
    model = nn.ModuleDict(
        {
            "net": nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)),
            "scale": nn.ParameterDict({"a": torch.ones(())}),
        }
    ).to(device)

    model.amp = torch.float16 if half else None

    net, scale = [*model["net"].parameters()], [*model["scale"].parameters()]
    groups = [
        Group(net, 1e-2, optimizer, 1e-5, weight_decay=0.1),
        Group(scale, 0.5, weight_decay=0.1, minimum=0.75),
    ]
    clip = [((0,), 0.3), ((1,), None)]
    return model, Learner(module=model, loss=regression_loss(model), groups=groups, clip=clip, compile=compile)


def data(device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(20, 3, generator=generator).to(device), torch.randn(20, generator=generator).to(device)


@needs_compiler
@pytest.mark.parametrize("optimizer", ["adam", pytest.param("adamw", marks=pytest.mark.slow), "sgd"])
def test_compiled_steps_are_the_plain_ones(optimizer):
    results = []
    for compile in (False, True):
        model, learner = regression(optimizer, compile)
        terms = []
        for step in range(5):
            if step == 3:
                learner.rates = [2e-3, 0.1]
            terms.append(learner(torch.arange(step, step + 12), *data()))
        assert learner.terms == ("error", "twice")
        results.append(torch.cat([*terms, *(p.detach().flatten() for p in model.parameters())]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-6)
    assert model["scale"]["a"].item() >= 0.75


@pytest.mark.gpu
def test_steps_captured_as_a_graph_are_the_plain_ones():
    results = []
    for compile in (False, True):
        model, learner = regression("adam", compile, "cuda")
        terms = [learner(torch.arange(step, step + 12, device="cuda"), *data("cuda")) for step in range(5)]
        results.append(torch.cat([*terms, *(p.detach().flatten() for p in model.parameters())]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)]
)
def test_plain_steps_are_torch_s(optimizer, theirs):
    model, learner = regression(optimizer, False)
    reference = copy.deepcopy(model)
    net, scale = [*reference["net"].parameters()], [*reference["scale"].parameters()]
    optimizers = [
        theirs(net, lr=1e-2, weight_decay=0.1, **({} if optimizer == "sgd" else {"eps": 1e-5})),
        torch.optim.Adam(scale, lr=0.5, weight_decay=0.1),
    ]
    x, y = data()
    for step in range(20):
        if step == 10:
            learner.rates = [2e-3, 0.1]
            for one, rate in zip(optimizers, learner.rates, strict=True):
                one.param_groups[0]["lr"] = rate
        learner(torch.arange(20), x, y)
        reference.zero_grad()
        (reference["scale"]["a"] * reference["net"](x).squeeze(-1) - y).square().mean().backward()
        nn.utils.clip_grad_norm_(net, 0.3)
        for one in optimizers:
            one.step()
        scale[0].data.clamp_(min=0.75)
    for ours, other in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, other, rtol=1e-5, atol=1e-6)


def test_a_loss_in_half_precision_is_scaled(monkeypatch):
    """The gradients are those of the loss itself; what is not finite is no step, and the factor falls; else it grows."""
    monkeypatch.setattr(learner_module, "PATIENCE", 3)
    plain_model, plain = regression("adam", False)
    model, learner = regression("adam", False, half=True)
    (x, y), index = data(), torch.arange(20)
    found = []
    for step in range(9):
        bad = step in (1, 5)
        before = copy.deepcopy((model.state_dict(), learner.state_dict()))
        learner(index, x, y.index_fill(0, torch.tensor(3), math.inf) if bad else y)
        found.append(learner.state_dict()["scale"].tolist())
        after = model.state_dict(), learner.state_dict()
        if bad:
            assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])
            assert all(map(torch.equal, before[1]["mean"] + before[1]["square"], after[1]["mean"] + after[1]["square"]))
            plain.steps += 1
        else:
            plain(index, x, y)
    assert found == [
        [2.0**16, 1], [2.0**15, 0], [2.0**15, 1], [2.0**15, 2], [2.0**16, 0],
        [2.0**15, 0], [2.0**15, 1], [2.0**15, 2], [2.0**16, 0],
    ]  # fmt: skip
    for ours, theirs in zip(model.parameters(), plain_model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    other, resumed = regression("adam", False, half=True)
    other.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(learner.state_dict()))
    learner(index, x, y)
    resumed(index, x, y)
    assert resumed.state_dict()["scale"].tolist() == learner.state_dict()["scale"].tolist() == [2.0**16, 1]
    assert all(map(torch.equal, model.parameters(), other.parameters()))


@needs_compiler
def test_compiled_steps_with_a_scaled_loss_are_the_plain_ones():
    results = []
    for compile in (False, True):
        model, learner = regression("adam", compile, half=True)
        for step in range(4):
            x, y = data()
            learner(torch.arange(20), x, y.index_fill(0, torch.tensor(3), math.inf) if step == 1 else y)
        results.append([*(p.detach().flatten() for p in model.parameters()), learner.state_dict()["scale"]])
    assert results[0][-1].tolist() == [2.0**15, 2]
    torch.testing.assert_close(torch.cat(results[0]), torch.cat(results[1]), rtol=1e-6, atol=1e-6)


@needs_compiler
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
@pytest.mark.parametrize("compile", [False, True])
def test_going_on_from_a_state_is_identical(compile, optimizer):
    model, learner = regression(optimizer, compile)
    index, batch = torch.arange(20), data()
    learner(index, *batch)
    learner.rates = [1e-3, 1e-2]
    state = copy.deepcopy((model.state_dict(), learner.state_dict()))
    other, resumed = regression(optimizer, compile)
    resumed(index, *batch)  # a step of its own before, whose traces must be gone
    other.load_state_dict(state[0])
    resumed.load_state_dict(state[1])
    for _ in range(3):
        assert torch.equal(learner(index, *batch), resumed(index, *batch))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


@needs_compiler
def test_a_state_moves_between_plain_and_compiled():
    model, learner = regression("adam", True)
    index, batch = torch.arange(20), data()
    learner(index, *batch)
    other, plain = regression("adam", False)
    other.load_state_dict(model.state_dict())
    plain.load_state_dict(copy.deepcopy(learner.state_dict()))
    torch.testing.assert_close(learner(index, *batch), plain(index, *batch), rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)


def test_a_copy_learns_by_itself():
    model, learner = regression("adam", False)
    index, batch = torch.arange(20), data()
    learner(index, *batch)
    other_model, other = copy.deepcopy((model, learner))
    other.loss = regression_loss(other_model)
    before = copy.deepcopy(model.state_dict())
    losses = [float(other(index, *batch)[0]) for _ in range(5)]
    assert losses[-1] < losses[0]
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
    assert [float(learner(index, *batch)[0]) for _ in range(5)] == losses


def test_an_unknown_optimizer_is_refused():
    with pytest.raises(ValueError, match="optimizer=rmsprop: allowed are adam, adamw, sgd"):
        Group([nn.Parameter(torch.ones(1))], 1e-3, "rmsprop")


PPO, VMPO = (test_ppo.make, test_ppo.rollout), (test_vmpo.make, test_vmpo.collect)
SLOW = pytest.mark.slow


@needs_compiler
@pytest.mark.parametrize(
    ("algorithm", "kind", "changes"),
    [
        (PPO, "continuous", {"clip_vloss": 0.1, "norm_value": True, "max_grad_norm": 0.1}),
        (VMPO, "continuous", {}),
        pytest.param(PPO, "continuous", {}, marks=SLOW),
        pytest.param(PPO, "discrete", {}, marks=SLOW),
        pytest.param(VMPO, "discrete", {}, marks=SLOW),
        pytest.param(VMPO, "continuous", {"minibatch_size": None, "max_grad_norm": 0.1}, marks=SLOW),
        pytest.param(VMPO, "continuous", {"network": {"shared_encoder": True}}, marks=SLOW),
        pytest.param(VMPO, "continuous", {"network": {"head": "squashed", "state_dependent_std": True}}, marks=SLOW),
    ],
)
def test_an_update_is_the_same_compiled(algorithm, kind, changes):
    """Policy, value, duals and metrics after an update, which is a dozen gradients on end."""
    make, rollout = algorithm
    results = []
    for compile in (False, True):
        algo = make(kind, compile=compile, **changes)
        batch = rollout(algo)
        torch.manual_seed(3)
        metrics = algo.update(batch, 0.3)
        results.append((metrics, algo.learner.module.state_dict()))
    (plain_metrics, plain), (metrics, compiled) = results
    assert metrics.keys() == plain_metrics.keys()
    for key in metrics:
        assert metrics[key] == pytest.approx(plain_metrics[key], rel=1e-4, abs=1e-5, nan_ok=True), key
    for key in plain:
        torch.testing.assert_close(compiled[key], plain[key], rtol=1e-4, atol=1e-5, msg=key)
