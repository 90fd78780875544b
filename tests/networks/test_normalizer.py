import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from minerva.networks.normalizer import ObservationNormalizer, PopArt


def batches(shape: tuple[int, ...]) -> list[np.ndarray]:
    """Unequal batches of unequal location and scale."""
    rng = np.random.default_rng(0)
    return [
        rng.normal(3.0, 2.0, (4, 5, *shape)),
        rng.normal(-10.0, 0.1, (1, 2, *shape)),
        rng.normal(100.0, 30.0, (7, 3, *shape)),
        rng.normal(0.0, 1.0, (1, 1, *shape)),
    ]


@pytest.mark.parametrize("shape", [(3,), (2, 4)])
def test_statistics_are_those_of_all_observations(shape):
    normalizer = ObservationNormalizer(shape, clip=1e9, symlog=False)
    for batch in batches(shape):
        normalizer.update(torch.from_numpy(batch))
    everything = np.concatenate([batch.reshape(-1, *shape) for batch in batches(shape)])
    obs = everything[:6].astype(np.float32)
    expected = (obs - everything.mean(0)) / everything.std(0)
    np.testing.assert_allclose(normalizer(torch.from_numpy(obs)).numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(normalizer.mean.numpy(), everything.mean(0), rtol=1e-10)
    np.testing.assert_allclose(normalizer.variance.numpy(), everything.var(0), rtol=1e-10)


def test_observations_far_from_zero_keep_their_precision():
    obs = 1e4 + torch.randn(1000, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    normalizer = ObservationNormalizer((1,), clip=10.0, symlog=False)
    for part in obs.float().split(100):
        normalizer.update(part)
    assert normalizer(obs.float()).std().item() == pytest.approx(1.0, abs=0.01)


def test_before_the_first_update_observations_pass_unchanged():
    obs = torch.tensor([[-2.0, 0.5, 1.5]])
    assert torch.equal(ObservationNormalizer((3,), clip=10.0, symlog=False)(obs), obs)


def test_the_result_is_clipped_on_both_sides():
    normalizer = ObservationNormalizer((1,), clip=2.0, symlog=False)
    normalizer.update(torch.tensor([[-1.0], [1.0]]))  # mean 0, deviation 1
    obs = torch.tensor([[-50.0], [-1.5], [1.5], [50.0]])
    torch.testing.assert_close(normalizer(obs), torch.tensor([[-2.0], [-1.5], [1.5], [2.0]]))


@pytest.mark.parametrize("training", [True, False])
def test_forward_changes_neither_the_statistics_nor_its_input(training):
    normalizer = ObservationNormalizer((3,), clip=1.0, symlog=False).train(training)
    normalizer.update(torch.randn(10, 3))
    before, obs = copy.deepcopy(normalizer.state_dict()), torch.full((5, 3), 100.0)
    normalizer(obs)
    assert torch.equal(obs, torch.full((5, 3), 100.0))
    for name, value in normalizer.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_constant_observation_stays_finite():
    normalizer = ObservationNormalizer((1,), clip=10.0, symlog=False)
    normalizer.update(torch.full((8, 1), 5.0))
    assert normalizer(torch.tensor([[5.0]])).item() == 0
    assert normalizer(torch.tensor([[6.0]])).item() == 10


def test_the_state_carries_the_statistics_and_the_count():
    normalizer, copied = (
        ObservationNormalizer((3,), clip=5.0, symlog=False),
        ObservationNormalizer((3,), clip=5.0, symlog=False),
    )
    first, second = torch.randn(50, 3) * 3 + 1, torch.randn(20, 3) - 4
    normalizer.update(first)
    copied.load_state_dict(normalizer.state_dict())
    assert torch.equal(copied(second), normalizer(second))
    for each in (normalizer, copied):
        each.update(second)
    assert torch.equal(copied(first), normalizer(first))


def popart(rate: float) -> PopArt:
    torch.manual_seed(0)
    return PopArt(nn.Linear(6, 1), rate)


def test_popart_begins_as_the_linear_layer():
    head, features = popart(0.1), torch.randn(4, 3, 6)
    torch.testing.assert_close(head(features), head.linear(features)[..., 0], rtol=0, atol=0)
    assert head(features).shape == (4, 3)


def test_popart_keeps_its_outputs_across_updates():
    head, features = popart(0.3), torch.randn(32, 6)
    before = head(features)
    for target in (torch.randn(64) * 50 + 20, torch.randn(64) * 0.3 - 7, torch.randn(64) * 1000):
        linear = head.linear.weight.clone()
        head.update(target)
        assert not torch.equal(head.linear.weight, linear)
        torch.testing.assert_close(head(features), before, rtol=1e-3, atol=1e-3)


def test_popart_statistics_equal_the_numbers_worked_out_by_hand():
    head = popart(0.5)
    head.update(torch.tensor([[1.0], [3.0]]))  # mean 2, mean square 5
    assert head.mean.item() == 2
    assert head.std.item() == 1  # 5 - 2^2
    # Of weight 1/2 against 1/4: mean 8 and mean square 68 are taken to 2/3.
    head.update(torch.tensor([6.0, 10.0]))
    assert head.mean.item() == pytest.approx(2 / 3 + 8 * 2 / 3)  # 6
    assert head.std.item() == pytest.approx(math.sqrt(5 / 3 + 68 * 2 / 3 - 6**2))  # sqrt 11


def test_popart_trains_in_normalised_units():
    """Where the linear layer says 0, the value is the targets' mean; where it says 1, a deviation more."""
    head = popart(0.1)
    head.update(torch.tensor([10.0, 14.0]))  # mean 12, deviation 2
    with torch.no_grad():
        head.linear.weight.zero_()
        for said, value in ((0.0, 12.0), (1.0, 14.0), (-2.0, 8.0)):
            head.linear.bias.fill_(said)
            assert head(torch.randn(1, 6)).item() == pytest.approx(value)


@pytest.mark.parametrize("rate", [1e-4, 0.1, 1.0])
def test_the_first_update_forgets_the_initial_guess(rate):
    target = torch.tensor([5.0, 7.0, 9.0])
    guesses = [(0.0, 1.0), (300.0, 1e5)]
    for mean, square in guesses:
        head = popart(rate)
        head.mean.fill_(mean)
        head.square.fill_(square)
        head.update(target)
        assert head.mean.item() == pytest.approx(7.0, rel=1e-4)
        assert head.std.item() == pytest.approx(math.sqrt(8 / 3), rel=1e-3)


@pytest.mark.parametrize(("target", "std"), [([5.0, 5.0], 1e-2), ([-1e9, 1e9], 1e6), ([0.0, 0.0], 1e-2)])
def test_popart_deviation_is_bounded(target, std):
    head = popart(0.1)
    head.update(torch.tensor(target))
    assert head.std.item() == pytest.approx(std)
    assert torch.isfinite(head(torch.randn(3, 6))).all()


def test_popart_state_round_trip():
    head, copied, features = popart(0.2), popart(0.2), torch.randn(5, 6)
    head.update(torch.randn(100) * 9 + 4)
    copied.load_state_dict(head.state_dict())
    for each in (head, copied):
        each.update(torch.randn(100, generator=torch.Generator().manual_seed(1)) - 3)
    assert torch.equal(copied(features), head(features))
    assert torch.equal(copied.std, head.std)


def test_a_symlog_hides_rare_large_values_and_keeps_small_ones():
    normalizer = ObservationNormalizer((1,), clip=10.0, symlog=True)
    data = torch.tensor([0.1, -0.1, 1.0, -2.0, 1000.0])[:, None]
    normalizer.update(data)
    logs = np.array([np.log(1.1), -np.log(1.1), np.log(2), -np.log(3), np.log(1001)])
    expected = (logs - logs.mean()) / logs.std()
    np.testing.assert_allclose(normalizer(data)[:, 0].numpy(), expected, rtol=1e-5)
