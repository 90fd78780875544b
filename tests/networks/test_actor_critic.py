import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from minerva.distributions import Categorical, Gaussian
from minerva.errors import UserError
from minerva.networks.actor_critic import ActorCritic
from minerva.networks.mlp import ACTIVATIONS
from minerva.types import EnvSpec
from tests.conftest import actor_critic

DISCRETE = spaces.Discrete(4)
ASYMMETRIC = spaces.Box(np.array([0.0, -0.4], np.float32), np.array([4.0, 0.4], np.float32))
UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def network(action: spaces.Discrete | spaces.Box, *, obs_shape=(5,), dtype="float32", **changes) -> ActorCritic:
    values = {"policy_layers": [32, 16], "value_layers": [24], "initial_std": 0.5}
    return actor_critic(EnvSpec(obs_shape, dtype, action), **(values | changes))


@pytest.mark.parametrize("batch", [(7,), (3, 7)])
@pytest.mark.parametrize("obs_shape", [(5,), (2, 3, 4)])
@pytest.mark.parametrize(
    ("action", "kind", "params", "sample"), [(DISCRETE, Categorical, (4,), ()), (ASYMMETRIC, Gaussian, (4,), (2,))]
)
def test_shapes(action, kind, params, sample, obs_shape, batch):
    net = network(action, obs_shape=obs_shape)
    policy, value = net(torch.randn(*batch, *obs_shape))
    assert isinstance(policy, kind)
    assert value.shape == batch
    assert policy.params.shape == (*batch, *params)
    assert policy.sample().shape == policy.mode().shape == (*batch, *sample)
    assert policy.log_prob(policy.sample()).shape == policy.entropy().shape == batch


@pytest.mark.parametrize("action", [DISCRETE, ASYMMETRIC])
def test_policy_and_value_alone_equal_both_together(action):
    net, obs = network(action), torch.randn(6, 5)
    policy, value = net(obs)
    assert torch.equal(net.policy(obs).params, policy.params)
    assert torch.equal(net.value(obs), value)


@pytest.mark.parametrize("action", [DISCRETE, ASYMMETRIC])
def test_the_head_builds_the_distribution_again(action):
    net, obs = network(action), torch.randn(6, 5)
    policy = net.policy(obs)
    again, sample = net.policy_head.distribution(policy.params), policy.sample()
    assert torch.equal(again.log_prob(sample), policy.log_prob(sample))


def test_images_are_divided_by_255_and_not_normalised():
    net = network(DISCRETE, obs_shape=(4, 4, 3), dtype="uint8")
    obs = torch.randint(256, (6, 4, 4, 3), dtype=torch.uint8)
    net.update_normalizer(obs)
    assert net.normalizer is None
    assert torch.equal(net.value(obs), net.value_head(net.value_body(obs / 255)))


@pytest.mark.parametrize(
    ("action", "center", "half_width"),
    [(ASYMMETRIC, [2.0, 0.0], [2.0, 0.4]), (UNBOUNDED, [0.0, 0.0], [1.0, 1.0])],
    ids=["asymmetric", "unbounded"],
)
def test_the_first_policy_is_near_the_centre_with_the_initial_deviation(action, center, half_width):
    policy = network(action, initial_std=0.5).policy(torch.randn(100, 5))
    # 16 features within +-1 under orthonormal rows times 0.01 are within 0.01 * sqrt(16).
    distance = (policy.mode() - torch.tensor(center)).abs() / torch.tensor(half_width)
    assert 0 < distance.max() <= 0.04
    torch.testing.assert_close(policy.std, 0.5 * torch.tensor(half_width).expand(100, 2))


@pytest.mark.parametrize("state_dependent_std", [False, True])
def test_a_squashed_policy_begins_in_the_middle_and_stays_within_the_bounds(state_dependent_std):
    net = network(ASYMMETRIC, head="squashed", state_dependent_std=state_dependent_std, initial_std=2.0)
    policy = net.policy(torch.randn(500, 5))
    torch.testing.assert_close(policy.std, torch.full((500, 2), 2.0), rtol=0.05, atol=0)
    middle = policy.action(policy.mode())
    assert ((middle - torch.tensor([2.0, 0.0])).abs() <= 0.04 * torch.tensor([2.0, 0.4])).all()
    action = policy.action(policy.sample())
    low, high = torch.tensor(ASYMMETRIC.low), torch.tensor(ASYMMETRIC.high)
    assert ((action >= low) & (action <= high)).all()
    assert (action.amax(0) > 0.9 * high).all(), "and reaches far into them"


@pytest.mark.parametrize("head", ["squashed", "beta"])
def test_a_head_that_needs_bounds_is_refused_where_there_are_none(head):
    with pytest.raises(UserError, match=rf"network\.head={head}: allowed is gaussian"):
        network(UNBOUNDED, head=head)


@pytest.mark.parametrize("head", ["gaussian", "squashed"])
def test_a_state_dependent_deviation_depends_on_the_state_and_is_learned(head):
    net = network(ASYMMETRIC, state_dependent_std=True, head=head)
    policy = net.policy(torch.randn(9, 5))
    assert policy.std.unique(dim=0).shape[0] == 9
    policy.log_std.sum().backward()
    assert net.policy_head.log_std.layer.weight.grad.any()
    assert gradients(net.policy_body)


def test_bounded_and_unbounded_dimensions_mix():
    low = np.array([1.0, -np.inf, 0.0, -np.inf], np.float32)
    high = np.array([5.0, np.inf, np.inf, 7.0], np.float32)
    policy = network(spaces.Box(low, high), initial_std=1.0).policy(torch.zeros(1, 5))
    torch.testing.assert_close(policy.mode(), torch.tensor([[3.0, 0.0, 0.0, 0.0]]))
    torch.testing.assert_close(policy.std, torch.tensor([[2.0, 1.0, 1.0, 1.0]]))


def test_the_first_discrete_policy_is_nearly_uniform():
    policy = network(DISCRETE).policy(torch.randn(100, 5))
    probabilities = policy.log_probs.exp()
    torch.testing.assert_close(probabilities, torch.full_like(probabilities, 0.25), rtol=0, atol=0.03)


def test_the_deviation_is_the_same_in_every_state_and_learned():
    net = network(ASYMMETRIC)
    policy = net.policy(torch.randn(9, 5))
    assert (policy.std == policy.std[0]).all()
    policy.entropy().mean().backward()
    torch.testing.assert_close(net.policy_head.log_std.vector.grad, torch.ones(2))


def linears(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


def singular_values(layer: nn.Linear) -> Tensor:
    return torch.linalg.svdvals(layer.weight.detach())


@pytest.mark.parametrize("action", [DISCRETE, ASYMMETRIC])
def test_initial_weights_are_orthogonal_with_their_gains(action):
    net = network(action, policy_layers=[32, 16], value_layers=[24, 24])
    gains = [
        (linears(net.policy_body), 2, math.sqrt(2)),
        (linears(net.value_body), 2, math.sqrt(2)),
        (linears(net.policy_head), 1, 0.01),
        (linears(net.value_head), 1, 1.0),
    ]
    for layers, count, gain in gains:
        assert len(layers) == count
        for layer in layers:
            values = singular_values(layer)
            torch.testing.assert_close(values, torch.full_like(values, gain))
            assert not layer.bias.any()


def test_layers_have_the_widths_asked_for():
    net = network(DISCRETE, obs_shape=(2, 3), policy_layers=[32, 16], value_layers=[24])
    assert [(layer.in_features, layer.out_features) for layer in linears(net.policy_body)] == [(6, 32), (32, 16)]
    assert [(layer.in_features, layer.out_features) for layer in linears(net.value_body)] == [(6, 24)]


def test_without_hidden_layers_the_policy_is_linear():
    net = network(UNBOUNDED, policy_layers=[], value_layers=[], normalize_observations=False)
    a, b = torch.randn(2, 1, 5)
    with torch.no_grad():
        torch.testing.assert_close(net.policy(a + b).mode(), net.policy(a).mode() + net.policy(b).mode())
        torch.testing.assert_close(net.value(a + b), net.value(a) + net.value(b))


@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_activations(name):
    reference = nn.functional.tanh if name == "tanh" else getattr(nn.functional, name)
    net = network(DISCRETE, policy_layers=[8], activation=name, normalize_observations=False)
    obs, (hidden,) = torch.randn(3, 5), linears(net.policy_body)
    torch.testing.assert_close(net.policy_body(obs), reference(hidden(obs)))


def gradients(module: nn.Module) -> list[Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None and p.grad.any()]


@pytest.mark.parametrize("action", [DISCRETE, ASYMMETRIC])
def test_policy_and_value_share_no_layers(action):
    net, obs = network(action), torch.randn(6, 5)
    net.value(obs).square().mean().backward()
    assert gradients(net.value_body)
    assert not gradients(net.policy_body) + gradients(net.policy_head)

    net.zero_grad()
    policy = net.policy(obs)
    policy.log_prob(policy.sample()).mean().backward()
    assert gradients(net.policy_body)
    assert not gradients(net.value_body) + gradients(net.value_head)


def test_a_shared_encoder_learns_from_both_and_belongs_to_the_policy():
    net, obs = network(DISCRETE, shared_encoder=True, policy_layers=[16], value_layers=[16]), torch.randn(6, 5)
    policy, value = net(obs)
    assert torch.equal(net.policy(obs).params, policy.params)
    assert torch.equal(net.value(obs), value)
    value.square().mean().backward()
    assert gradients(net.policy_body)
    both = [*net.policy_parameters(), *net.value_parameters()]
    assert len(both) == len(set(both)) == len(list(net.parameters())), "each is in one group, once"
    assert set(net.value_parameters()) == set(net.value_head.parameters())


@pytest.mark.parametrize("action", [DISCRETE, ASYMMETRIC])
def test_the_state_carries_the_normaliser(action):
    net, obs = network(action), torch.randn(50, 5) * 20 + 100
    net.update_normalizer(obs)
    copied = network(action, initial_std=0.9)
    for parameter in copied.parameters():
        nn.init.normal_(parameter)
    copied.load_state_dict(net.state_dict())
    assert torch.equal(copied.policy(obs).params, net.policy(obs).params)
    assert torch.equal(copied.value(obs), net.value(obs))


def test_the_network_sees_normalised_observations():
    net, obs = network(DISCRETE), torch.randn(200, 5) * 20 + 100
    net.update_normalizer(obs)
    normalised = (obs - obs.mean(0)) / obs.std(0, correction=0)
    plain = network(DISCRETE, normalize_observations=False)  # of the same weights, by the same seed
    torch.testing.assert_close(net.value(obs), plain.value(normalised), rtol=1e-3, atol=1e-4)


def test_without_normaliser_nothing_is_normalised():
    net, obs = network(DISCRETE, normalize_observations=False), torch.randn(6, 5) * 100
    before = net.value(obs)
    net.update_normalizer(obs)
    assert torch.equal(net.value(obs), before)
    assert not any("normalizer" in name for name in net.state_dict())
