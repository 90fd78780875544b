"""Backbones: what they compute, against torch's own, and that policies learn with each of them."""

from __future__ import annotations

import copy
import shutil
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from minerva.errors import UserError
from minerva.learner import Group, Learner
from minerva.networks.cnn import CNN
from minerva.networks.mlp import MLP
from minerva.networks.transformer import Transformer
from minerva.types import EnvSpec, Part
from tests import test_ppo, test_vmpo
from tests.conftest import actor_critic
from tests.test_probes import learn

NATURE = {"channels": [32, 64, 64], "kernels": [8, 4, 3], "strides": [4, 2, 1], "activation": "relu"}


@pytest.mark.parametrize(
    ("obs_shape", "width"),
    [((84, 84, 4), 3136), ((4, 84, 84), 3136), ((84, 84), 3136), ((64, 64, 3), 1024), ((3, 64, 96, 3), 64 * 4 * 8)],
)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_sizes_are_worked_out(obs_shape, width, batch):
    cnn = CNN(obs_shape=obs_shape, **NATURE)
    assert cnn.out_dim == width
    assert cnn(torch.rand(*batch, *obs_shape)).shape == (*batch, width)


def test_channels_first_and_last_and_of_several_images_are_the_same():
    images = torch.rand(5, 2, 3, 40, 48)  # of two in a row
    first = CNN(obs_shape=(2, 3, 40, 48), **NATURE)
    expected = first.layers(images.flatten(1, 2))
    for obs in (images, images.movedim(2, -1), images.flatten(1, 2), images.flatten(1, 2).movedim(1, -1)):
        other = CNN(obs_shape=obs.shape[1:], **NATURE)
        other.load_state_dict(first.state_dict())
        torch.testing.assert_close(other(obs), expected)


def test_what_does_not_go_through_a_cnn_is_refused():
    with pytest.raises(UserError, match=r"network=cnn: allowed are images; the observations have the shape \[17\]"):
        CNN(obs_shape=(17,), **NATURE)
    with pytest.raises(UserError, match=r"network.backbone.kernels=\[8, 4, 3\]: allowed are kernels that fit"):
        CNN(obs_shape=(30, 30, 3), **NATURE)


def test_a_transformer_is_torchs():
    ours = Transformer(obs_shape=(6, 2, 3), seq_len=6, d_model=16, heads=4, layers=2, dropout=0.0)
    theirs = [
        nn.TransformerEncoderLayer(16, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        for _ in range(2)
    ]
    for block, layer in zip(ours.blocks, theirs, strict=True):
        for mine, other in (
            (block.qkv.weight, layer.self_attn.in_proj_weight), (block.qkv.bias, layer.self_attn.in_proj_bias),
            (block.out.weight, layer.self_attn.out_proj.weight), (block.out.bias, layer.self_attn.out_proj.bias),
            (block.mlp[0].weight, layer.linear1.weight), (block.mlp[0].bias, layer.linear1.bias),
            (block.mlp[2].weight, layer.linear2.weight), (block.mlp[2].bias, layer.linear2.bias),
        ):  # fmt: skip
            other.data.copy_(mine)
    obs = torch.randn(3, 5, 6, 2, 3)
    tokens = obs.reshape(15, 6, 6) @ ours.embed.weight.T + ours.embed.bias + ours.place
    for layer in theirs:
        tokens = layer(tokens)
    expected = nn.functional.layer_norm(tokens[:, -1], (16,)).reshape(3, 5, 16)
    torch.testing.assert_close(ours(obs), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("obs_shape", "seq_len"), [((5,), 16), ((5,), 1), ((4, 5), 16)])
def test_what_is_no_sequence_of_that_length_is_refused(obs_shape, seq_len):
    with pytest.raises(UserError, match=rf"network.backbone.seq_len={seq_len}: allowed is the same as env.frame_stack"):
        Transformer(obs_shape=obs_shape, seq_len=seq_len, d_model=8, heads=2, layers=1, dropout=0.0)


@pytest.mark.parametrize("algorithm", [test_ppo, test_vmpo])
def test_dropout_is_for_the_loss_alone(algorithm, monkeypatch):
    spec = EnvSpec((2, 2), "float32", spaces.Discrete(2))
    net = actor_critic(
        spec, backbone=partial(Transformer, seq_len=2, d_model=8, heads=2, layers=1, dropout=0.5), policy_layers=[]
    )
    monkeypatch.setattr(algorithm, "actor_critic", lambda *_, **__: net)
    algo = algorithm.make("discrete")
    dropout = net.policy_body[0].blocks[0].dropout
    trained = []
    dropout.register_forward_hook(lambda module, *_: trained.append(module.training))
    obs = torch.randn(6, 2, 2)
    assert torch.equal(algo.network.policy(obs).params, algo.network.policy(obs).params)
    assert not any(trained)
    trained.clear()
    algo.learner.loss = lambda *_: (net.policy(obs).params.square().sum(), {"x": torch.tensor(0.0)})
    algo.learner.coefficients = {}
    algo.learner(torch.arange(6), obs)
    assert trained == [True, True], "twice in a block"
    assert not dropout.training


def test_a_hidden_layer_is_normalised_before_its_activation():
    mlp = MLP(obs_shape=(3,), layers=[16], activation="relu", init="default", layer_norm=True)
    linear = mlp.layers[0]
    obs = 100 * torch.randn(20, 3)
    before = linear(obs)
    expected = ((before - before.mean(-1, keepdim=True)) / before.std(-1, correction=0, keepdim=True)).relu()
    torch.testing.assert_close(mlp(obs), expected, rtol=1e-3, atol=1e-3)
    torch.manual_seed(3)
    theirs = nn.Linear(3, 16)
    torch.manual_seed(3)
    ours = MLP(obs_shape=(3,), layers=[16], activation="relu", init="default", layer_norm=False).layers[0]
    assert torch.equal(ours.weight, theirs.weight)


@pytest.mark.parametrize("shared", [False, True])
def test_policy_and_value_share_a_backbone_or_have_their_own(shared):
    spec = EnvSpec((12, 12, 1), "uint8", spaces.Discrete(2))
    made = []

    def backbone(obs_shape):
        made.append(CNN(obs_shape=obs_shape, channels=[4], kernels=[3], strides=[2], activation="relu"))
        return made[-1]

    net = actor_critic(spec, backbone=backbone, shared_encoder=shared)
    assert len(made) == (1 if shared else 2)
    everything = [*net.policy_parameters(), *net.value_parameters()]
    assert len({id(p) for p in everything}) == len(everything) == len([*net.parameters()])
    obs = torch.randint(256, (5, 12, 12, 1), dtype=torch.uint8)
    net.value(obs).sum().backward()
    assert (made[0].layers[0].weight.grad is not None) == shared


def test_the_statistics_of_stacked_observations_are_of_the_newest():
    net = actor_critic(EnvSpec((3, 2), "float32", spaces.Discrete(2), frame_stack=3))
    obs = torch.randn(7, 5, 3, 2)
    net.update_normalizer(obs)
    np.testing.assert_allclose(net.normalizer.mean, obs[:, :, -1].double().mean((0, 1)), rtol=1e-6)
    assert net.value(obs).shape == (7, 5)


SMALL = {
    "mlp": ("network=mlp",),
    "cnn": (
        "network=cnn",
        "network.backbone.channels=[8,8]",
        "network.backbone.kernels=[3,3]",
        "network.backbone.strides=[2,2]",
    ),
    "transformer": ("network=transformer", "network.backbone.d_model=32", "network.backbone.layers=1"),
}
OBSERVES = {"mlp": "vector", "cnn": "image", "transformer": "sequence"}
HEADS = {
    "categorical": ("discrete",), "multicategorical": ("multi",), "gaussian": ("continuous",),
    "squashed": ("continuous", "network.head=squashed"), "beta": ("continuous", "network.head=beta"),
}  # fmt: skip
QUICK = {
    ("ppo", "transformer", "beta"),
    ("ppo", "mlp", "multicategorical"),
    ("vmpo", "cnn", "squashed"),
    ("vmpo", "mlp", "beta"),
}
EACH = [(algo, network, head) for algo in ("ppo", "vmpo") for network in SMALL for head in HEADS]
SMALL["both"] = (*SMALL["cnn"], "network.policy_layers=[64]", "network.value_layers=[64]")
OBSERVES["both"] = "both"
EACH += [("ppo", "both", "categorical"), ("vmpo", "both", "gaussian")]
QUICK |= {EACH[-2]}


@pytest.mark.parametrize(
    ("algo", "network", "head"), [pytest.param(*c, marks=() if c in QUICK else pytest.mark.slow) for c in EACH]
)
def test_each_backbone_learns_with_each_head(algo, network, head):
    act, *overrides = HEADS[head]
    env = (
        "env.id=tests.envs.shaped:test/Shaped-v0",
        f"+env.kwargs.observe={OBSERVES[network]}",
        f"+env.kwargs.act={act}",
    )
    sequence = ("network.backbone.seq_len=1",) if network == "transformer" else ()
    if (algo, network) == ("ppo", "transformer") and "categorical" in head:  # for it the probes' rate is too high
        sequence += ("algo.learning_rate=3e-4",)
    agent, env = learn(algo, "continuous_action", *env, *SMALL[network], *sequence, *overrides, with_env=True)
    obs, total = env.reset(5), 0.0
    for _ in range(20):
        step = env.step(agent.actor.act(torch.as_tensor(obs)).action.detach().numpy())
        obs, total = step.obs, total + step.reward.mean() / 20
    assert total > 0.9


@pytest.mark.parametrize("stack", [(), (3,)])
def test_of_vectors_and_images_each_goes_its_way(stack):
    parts = (Part("b", (2,), False), Part("c", (), False), Part("a", (12, 10, 3), True))
    spec = EnvSpec((*stack, 3 + 360), "float32", spaces.Discrete(2), frame_stack=len(stack) and 3, parts=parts)
    cnn = partial(CNN, channels=[4], kernels=[3], strides=[2], activation="relu")
    net = actor_critic(spec, backbone=cnn, normalize_observations=True, policy_layers=[8], shared_encoder=True)
    vector, image = torch.randn(7, *stack, 3), torch.randint(256, (7, *stack, 12, 10, 3)).float()
    obs = torch.cat([vector, image.flatten(-3)], dim=-1)
    net.update_normalizer(obs)
    assert net.normalizer.mean.shape == (3,)
    newest = vector[:, -1] if stack else vector
    torch.testing.assert_close(net.normalizer.mean, newest.double().mean(0))
    mixed, layers = net.policy_body
    assert mixed.out_dim == 3 * (3 if stack else 1) + 4 * 5 * 4
    features = torch.cat([net.normalizer(vector).flatten(1), mixed.backbones[0](image / 255)], dim=-1)
    torch.testing.assert_close(net.policy(obs).params, net.policy_head(layers(features)).params)


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("kind", [pytest.param("cnn", marks=pytest.mark.slow), "transformer"])
def test_a_step_is_the_same_compiled(kind):
    made = {
        "cnn": (EnvSpec((12, 12, 3), "uint8", spaces.Discrete(2)), partial(CNN, channels=[4, 4], kernels=[3, 3], strides=[2, 1], activation="relu")),
        "transformer": (EnvSpec((5, 3), "float32", spaces.Discrete(2)), partial(Transformer, seq_len=1, d_model=8, heads=2, layers=2, dropout=0.0)),
    }  # fmt: skip
    spec, backbone = made[kind]
    results = []
    for compile in (False, True):
        net = actor_critic(spec, backbone=backbone, shared_encoder=True)
        groups = [Group(some, 0.1, "sgd") for some in (net.policy_parameters(), net.value_parameters())]

        def loss(obs, net=net):
            policy, value = net(obs)
            total = (value - 1).square().mean() - policy.entropy().mean()
            return total, {"loss": total}

        learner = Learner(module=net, loss=loss, groups=groups, clip=[((0, 1), 0.5)], compile=compile)
        obs = (100 * torch.rand(20, *spec.obs_shape, generator=torch.Generator().manual_seed(0))).to(
            getattr(torch, spec.obs_dtype)
        )
        terms = [learner(torch.arange(step, step + 16), obs) for step in range(4)]
        results.append(torch.cat([*terms, *(p.detach().flatten() for p in net.parameters())]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("algo", "amp"),
    [
        ("ppo", "fp16"),
        ("vmpo", "bf16"),
        pytest.param("ppo", "bf16", marks=pytest.mark.slow),
        pytest.param("vmpo", "fp16", marks=pytest.mark.slow),
    ],
)
def test_it_learns_in_half_precision(algo, amp):
    agent = learn(algo, "continuous_action", f"amp={amp}")
    obs = torch.tensor([[-1.0], [1.0]])
    policy, value = agent.network(obs)
    assert policy.params.dtype == value.dtype == torch.float32
    assert {parameter.dtype for parameter in agent.network.parameters()} == {torch.float32}
    whole = copy.deepcopy(agent.network)
    whole.amp = None
    assert 0 < (whole.value(obs) - value).abs().max() < 0.1, "near, and not the same"
    action = agent.actor.act(obs).action.detach().numpy()
    np.testing.assert_allclose(action[:, 0], [-0.5, 0.5], atol=0.1)


@pytest.mark.parametrize("algo", ["ppo", pytest.param("vmpo", marks=pytest.mark.slow)])
def test_what_was_observed_first_is_remembered_with_a_transformer_and_not_without(algo):
    # Half of the episodes reward each of two actions, so that without memory the mean is 0 whatever is done.
    for network, least, most in (("transformer", 0.99, 1.0), ("mlp", -0.35, 0.35)):
        agent, env = learn(algo, "memory", f"network={network}", with_env=True)
        obs, total, episodes = env.reset(5), 0.0, 0
        for _ in range(100):
            step = env.step(agent.actor.act(torch.as_tensor(obs)).action.detach().numpy())
            obs, total, episodes = step.obs, total + step.reward.sum(), episodes + step.terminated.sum()
        assert least <= total / episodes <= most
