"""The temperature's dual against finite differences, scipy and sums written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from minerva.duals import MINIMUM, solve_temperature, temperature_kl, temperature_loss, temperature_weights

SCALES = [1e-6, 1e-3, 1.0, 1e3, 1e12]


def sample(size: int = 200, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and an uneven prior."""
    generator = torch.Generator().manual_seed(size)
    advantage = scale * torch.randn(size, generator=generator, dtype=torch.float64)
    return advantage, torch.randn(size, generator=generator, dtype=torch.float64).log_softmax(0)


def uniform(size: int) -> torch.Tensor:
    return torch.full((size,), -math.log(size), dtype=torch.float64)


def test_loss_weights_and_kl_are_those_written_out():
    advantage, log_prior = sample(7)
    a, q, eta, epsilon = advantage.numpy(), log_prior.exp().numpy(), 0.7, 0.2
    weights = q * np.exp(a / eta)
    psi = weights / weights.sum()
    temperature = torch.tensor(eta, dtype=torch.float64)
    loss = temperature_loss(temperature, advantage, log_prior, epsilon)
    assert loss.item() == pytest.approx(eta * epsilon + eta * math.log(weights.sum()))
    np.testing.assert_allclose(temperature_weights(temperature, advantage, log_prior), psi)
    kl = (psi * np.log(psi / q)).sum()
    assert temperature_kl(temperature, advantage, log_prior).item() == pytest.approx(kl)


def test_with_equal_weights_the_loss_is_that_of_the_paper():
    advantage = sample(50)[0]
    eta = torch.tensor(0.3, dtype=torch.float64)
    expected = 0.3 * 0.1 + 0.3 * math.log(np.exp(advantage.numpy() / 0.3).mean())
    assert temperature_loss(eta, advantage, uniform(50), 0.1).item() == pytest.approx(expected)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("epsilon", [0.01, 0.5])
def test_the_gradient_is_epsilon_minus_the_kl(scale, epsilon):
    advantage, log_prior = sample(scale=scale)
    for factor in (0.1, 1.0, 10.0):
        eta = torch.tensor(factor * scale, dtype=torch.float64, requires_grad=True)
        temperature_loss(eta, advantage, log_prior, epsilon).backward()
        psi = torch.distributions.Categorical(temperature_weights(eta.detach(), advantage, log_prior))
        kl = torch.distributions.kl_divergence(psi, torch.distributions.Categorical(logits=log_prior))
        assert eta.grad.item() == pytest.approx(epsilon - kl.item(), abs=1e-6)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.3, 1.0])
def test_at_the_solution_the_kl_is_epsilon(scale, epsilon):
    advantage, log_prior = sample(scale=scale)
    eta = solve_temperature(advantage, log_prior, epsilon)
    assert temperature_kl(eta, advantage, log_prior).item() == pytest.approx(epsilon, rel=1e-6)


def test_the_solution_is_scipys():
    advantage, log_prior = sample()
    eta = solve_temperature(advantage, log_prior, 0.3).item()

    def dual(x: float) -> float:
        return temperature_loss(torch.tensor(x, dtype=torch.float64), advantage, log_prior, 0.3).item()

    assert eta == pytest.approx(minimize_scalar(dual, bounds=(1e-3, 1e3), method="bounded").x, rel=1e-3)


def test_the_solution_is_found_where_it_is_nearest_to_its_bound():
    # Two samples have the largest variance of their range: eta is 35.3536, and the bound 1 / sqrt(8e-4) = 35.3553.
    advantage = torch.tensor([0.0, 1.0], dtype=torch.float64)
    eta = solve_temperature(advantage, uniform(2), 1e-4)
    assert temperature_kl(eta, advantage, uniform(2)).item() == pytest.approx(1e-4, rel=1e-6)


@pytest.mark.parametrize(
    "advantage",
    [[3.0], [2.0, 2.0, 2.0], [0.0, 1e-300], [1.0, 0.0]],
    ids=["one sample", "all equal", "nearly equal", "epsilon out of reach"],
)
def test_where_no_kl_is_that_large_the_temperature_is_at_its_minimum(advantage):
    values = torch.tensor(advantage, dtype=torch.float64)
    eta = solve_temperature(values, uniform(len(values)), math.log(2) + 0.1)
    assert eta.item() == pytest.approx(MINIMUM)
    psi = temperature_weights(eta, values, uniform(len(values)))
    best = values >= values.max() - 1e-12
    torch.testing.assert_close(psi, best.double() / best.sum(), rtol=0, atol=1e-9)
