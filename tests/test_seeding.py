import itertools

import pytest
import torch

from minerva.seeding import RandomState, derive, seed_everything


def test_seeds_are_the_same_on_every_machine_and_version():
    assert derive(0, "train") == 1843184613
    assert derive(7, 3, 12) == 1136979576


def test_seeds_differ_between_purposes_environments_episodes_and_runs():
    keys = [("train",), ("eval",), ("weights",), *itertools.product(range(8), range(8))]
    seeds = {derive(seed, *key) for seed in range(20) for key in keys}
    assert len(seeds) == 20 * len(keys)
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_the_order_of_the_keys_matters():
    assert derive(0, 1, 2) != derive(0, 2, 1)
    assert derive(1, 0, 2) != derive(0, 1, 2)


def test_neighbouring_seeds_share_no_bits():
    """As unrelated numbers would, they differ in about half of their 32 bits."""
    differing = [(derive(seed, "train") ^ derive(seed + 1, "train")).bit_count() for seed in range(200)]
    assert sum(differing) / len(differing) == pytest.approx(16, abs=1)


def test_equal_seeds_draw_equal_numbers():
    draws = []
    for seed in (3, 3, 4):
        seed_everything(seed, torch.device("cpu"))
        draws.append(torch.rand(5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_the_random_state_goes_on_where_it_was_taken():
    seed_everything(0, torch.device("cpu"))
    torch.rand(7)
    state = RandomState(torch.device("cpu")).state_dict()
    expected = torch.rand(5), torch.randperm(10), torch.randn(3)
    seed_everything(99, torch.device("cpu"))
    RandomState(torch.device("cpu")).load_state_dict(state)
    drawn = torch.rand(5), torch.randperm(10), torch.randn(3)
    for one, other in zip(drawn, expected, strict=True):
        assert torch.equal(one, other)


def test_a_random_state_taken_on_a_gpu_serves_without_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    state = RandomState(torch.device("cpu")).state_dict()
    assert state["cuda"] is None
    expected = torch.rand(5)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda _: pytest.fail("there is no GPU"))
    RandomState(torch.device("cpu")).load_state_dict({**state, "cuda": torch.zeros(16, dtype=torch.uint8)})
    assert torch.equal(torch.rand(5), expected)
