"""The policy in NumPy against the policy in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from minerva.arrays import numpy_function
from minerva.networks.actor_critic import ActorCritic
from minerva.types import EnvSpec
from tests.conftest import actor_critic

BOX = spaces.Box(np.float32([-2, -1]), np.float32([2, 3]))


def network(action=BOX, shape=(5,), dtype="float32", **changes) -> ActorCritic:
    values = {"policy_layers": [16, 16], "initial_std": 0.7, "symlog_observations": True, "observation_clip": 2.0}
    made = actor_critic(EnvSpec(shape, dtype, action), **(values | changes))
    made.update_normalizer(3 + 5 * torch.randn(100, *shape))
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"head": "squashed"},
        {"state_dependent_std": True},
        {"activation": "relu"},
        {"normalize_observations": False},
        {"symlog_observations": False},
        {"policy_layers": [], "value_layers": []},
        {"action": spaces.Discrete(4)},
        {"shape": (2, 3)},
        {"shape": (2, 3), "dtype": "uint8", "normalize_observations": False},
    ],
)
@pytest.mark.parametrize("num_envs", [1, 7])
def test_the_two_are_one(changes, num_envs):
    net = network(**changes)
    shape, dtype = changes.get("shape", (5,)), getattr(torch, changes.get("dtype", "float32"))
    draw = lambda: (10 * torch.randn(num_envs, *shape)).abs().to(dtype)  # noqa: E731
    make = numpy_function(net.act, net, [draw(), net.noise(num_envs)])
    assert make is not None
    for _ in range(3):
        obs, noise = draw(), net.noise(num_envs)
        with torch.no_grad():
            expected = net.act(obs, noise)
        for ours, theirs in zip(make()(obs.numpy(), noise.numpy()), expected, strict=True):
            assert ours.dtype == theirs.numpy().dtype
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-5, atol=1e-6)
        with torch.no_grad():  # and so it stays, whatever is learned
            for parameter in net.parameters():
                parameter += 0.1 * torch.randn_like(parameter)
        net.update_normalizer(draw().float() if dtype is not torch.uint8 else draw())


def test_what_is_not_known_is_left_to_pytorch():
    net = network(activation="gelu")
    assert numpy_function(net.act, net, [torch.zeros(1, 5), net.noise(1)]) is None


def test_what_is_known_but_used_otherwise_is_left_to_pytorch():
    net = network()
    scaled = lambda obs: (torch.add(obs, obs, alpha=2),)  # noqa: E731  # NumPy's has no alpha
    bounded = lambda obs: (obs.clamp(max=0.5),)  # noqa: E731
    assert numpy_function(scaled, net, [torch.ones(1, 5)]) is None
    assert numpy_function(bounded, net, [torch.ones(1, 5)]) is None


def test_what_numpy_gives_in_another_shape_or_precision_is_left_to_pytorch():
    net = network()
    net.register_buffer("midpoint", torch.tensor(0.5, dtype=torch.float64))
    wider = lambda obs: (obs * net.midpoint,)  # noqa: E731  # float64 in NumPy
    assert numpy_function(wider, net, [torch.ones(1, 5)]) is None


def test_one_part_of_a_split_and_parts_of_what_is_held_elsewhere():
    net, other = network(), torch.arange(10.0).view(1, 10)
    whole = lambda obs: (obs.chunk(1, -1)[0] + other.chunk(2, -1)[1],)  # noqa: E731
    act = numpy_function(whole, net, [torch.ones(1, 5)])()
    np.testing.assert_array_equal(act(np.ones((1, 5), np.float32))[0], [[6, 7, 8, 9, 10]])


def test_pytorch_s_compiler_is_not_imported_to_act_and_learn(python):
    """It takes a second."""
    done = python(
        "-c",
        """
import sys, torch
from tests.test_arrays import network
from tests.test_learner import data, regression
from minerva.arrays import acting
from tests.conftest import actor_critic
net = network()
acting(net, torch.device("cpu"), torch.zeros(1, 5), net.noise(1))()
regression("adam", False)[1](torch.arange(20), *data())
assert "torch._dynamo" not in sys.modules
""",
    )
    assert done.returncode == 0, done.stderr


def test_without_noise_there_is_none():
    net = network()
    act = numpy_function(net.act, net, [torch.zeros(2, 5)])()
    np.testing.assert_allclose(
        act(np.ones((2, 5), np.float32))[0], net.act(torch.ones(2, 5)).action.detach(), rtol=1e-5
    )
