import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
import scipy.stats
import torch
from torch import Tensor

from minerva.distributions import Beta, Categorical, Gaussian, MultiCategorical, SquashedGaussian, quadrature

T, N, A, D = 5, 3, 4, 2
CENTER, HALF_WIDTH = torch.tensor([2.0, -1.0]), torch.tensor([3.0, 0.4])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def categorical(params: Tensor) -> torch.distributions.Categorical:
    """torch's own, of the same parameters."""
    return torch.distributions.Categorical(logits=params)


def gaussian(params: Tensor) -> torch.distributions.Independent:
    """torch's own, of the same parameters."""
    mean, log_std = params[..., :D], params[..., D:]
    return torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)


CASES = [(Categorical, categorical, A), (Gaussian, gaussian, 2 * D)]
BATCHES = [(N,), (T, N), (T, N, 2)]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("ours", "theirs", "width"), CASES)
def test_log_prob_and_entropy_equal_torchs(ours, theirs, width, batch):
    params = torch.randn(*batch, width)
    action = theirs(params).sample()
    log_prob, entropy = ours(params).log_prob(action), ours(params).entropy()
    assert log_prob.shape == entropy.shape == batch
    torch.testing.assert_close(log_prob, theirs(params).log_prob(action))
    torch.testing.assert_close(entropy, theirs(params).entropy())


@pytest.mark.parametrize("batch", BATCHES)
def test_categorical_shapes(batch):
    distribution = Categorical(torch.randn(*batch, A))
    for action in (distribution.sample(), distribution.mode()):
        assert action.shape == batch
        assert action.dtype == torch.int64


@pytest.mark.parametrize("batch", BATCHES)
def test_gaussian_shapes(batch):
    distribution = Gaussian(torch.randn(*batch, 2 * D))
    assert distribution.sample().shape == distribution.mode().shape == (*batch, D)


@pytest.mark.parametrize("batch", BATCHES)
def test_categorical_kl_equals_torchs(batch):
    old, new = torch.randn(2, *batch, A)
    parts = Categorical(old).kl(Categorical(new))
    assert tuple(parts) == Categorical.kl_parts == ("kl",)
    torch.testing.assert_close(parts["kl"], torch.distributions.kl_divergence(categorical(old), categorical(new)))


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("differs", "same"), [("mean", "std"), ("std", "mean")])
def test_gaussian_kl_where_one_quantity_differs_is_the_whole_kl(differs, same, batch):
    old = torch.randn(*batch, 2 * D)
    new = torch.randn(*batch, 2 * D)
    kept = slice(D, None) if same == "std" else slice(None, D)
    new[..., kept] = old[..., kept]
    parts = Gaussian(old).kl(Gaussian(new))
    assert tuple(parts) == Gaussian.kl_parts == ("mean", "std")
    torch.testing.assert_close(parts[differs], torch.distributions.kl_divergence(gaussian(old), gaussian(new)))
    torch.testing.assert_close(parts[same], torch.zeros(batch))


def test_gaussian_kl_of_the_mean_is_measured_by_the_old_deviation():
    # One dimension: means 0 and 3, deviations 2 and 5. (3 / 2)^2 / 2 = 1.125.
    old, new = torch.tensor([[0.0, math.log(2)]]), torch.tensor([[3.0, math.log(5)]])
    assert Gaussian(old).kl(Gaussian(new))["mean"].item() == pytest.approx(1.125)


def test_categorical_samples_follow_the_probabilities():
    probs = torch.tensor([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    samples = Categorical(probs.log().expand(20_000, 2, 3)).sample()
    for row in range(2):
        frequency = torch.bincount(samples[:, row], minlength=3) / len(samples)
        torch.testing.assert_close(frequency, probs[row], rtol=0, atol=0.015)  # more than four standard errors


def test_gaussian_samples_have_the_mean_and_the_deviation():
    params = torch.tensor([1.0, -2.0, math.log(0.5), math.log(3.0)])
    samples = Gaussian(params.expand(20_000, 4)).sample()
    torch.testing.assert_close(samples.mean(0), torch.tensor([1.0, -2.0]), rtol=0, atol=0.1)
    torch.testing.assert_close(samples.std(0), torch.tensor([0.5, 3.0]), rtol=0.03, atol=0)
    assert abs(torch.corrcoef(samples.T)[0, 1]) < 0.03


def test_the_mode_has_the_highest_density():
    params = torch.tensor([[0.0, 2.0, 1.0], [5.0, -1.0, 4.0]]).expand(30, 2, 3)
    assert Categorical(params).mode().tolist() == [[1, 0]] * 30
    params = torch.randn(T, N, 2 * D)
    distribution = Gaussian(params)
    best = distribution.log_prob(distribution.mode())
    for _ in range(20):
        assert (distribution.log_prob(distribution.sample()) <= best).all()
    torch.testing.assert_close(distribution.mode(), params[..., :D], rtol=0, atol=0)


@pytest.mark.parametrize(("ours", "theirs", "width"), CASES)
def test_gradients_flow_through_log_prob_and_not_through_samples(ours, theirs, width):
    values = torch.randn(T, N, width)
    mine, reference = values.clone().requires_grad_(), values.clone().requires_grad_()
    action = ours(mine).sample()
    assert not action.requires_grad
    ours(mine).log_prob(action).sum().backward()
    theirs(reference).log_prob(action).sum().backward()
    assert (reference.grad != 0).any()
    torch.testing.assert_close(mine.grad, reference.grad)


@pytest.mark.parametrize(("ours", "width"), [(Categorical, A), (Gaussian, 2 * D)])
def test_params_build_the_same_distribution_again(ours, width):
    distribution = ours(torch.randn(T, N, width))
    action = distribution.sample()
    again = ours(distribution.params)
    assert torch.equal(again.log_prob(action), distribution.log_prob(action))


def test_categorical_takes_actions_that_were_kept_as_floats():
    params = torch.randn(T, N, A)
    action = torch.randint(A, (T, N))
    assert torch.equal(Categorical(params).log_prob(action.float()), Categorical(params).log_prob(action))


def test_extreme_logits_stay_finite():
    distribution = Categorical(torch.tensor([[1e4, 0.0, -1e4]]))
    assert distribution.sample().item() == 0
    assert distribution.entropy().item() == 0
    assert distribution.log_prob(torch.tensor([2])).item() == pytest.approx(-2e4)


def squashed(params: Tensor) -> SquashedGaussian:
    """Into -1..5 and -1.4..-0.6."""
    return SquashedGaussian(params, CENTER.to(params.dtype), HALF_WIDTH.to(params.dtype), quadrature())


@pytest.mark.parametrize("batch", BATCHES)
def test_squashed_log_prob_equals_torchs_of_the_action(batch):
    params = 0.5 * torch.randn(*batch, 2 * D, dtype=torch.float64)  # torch inverts the tanh: exact away from the bounds
    ours = squashed(params)
    transforms = [
        torch.distributions.TanhTransform(cache_size=1),
        torch.distributions.AffineTransform(CENTER.double(), HALF_WIDTH.double()),
    ]
    normal = torch.distributions.Normal(params[..., :D], params[..., D:].exp())
    theirs = torch.distributions.TransformedDistribution(normal, transforms)
    sample = ours.sample()
    torch.testing.assert_close(ours.log_prob(sample), theirs.log_prob(ours.action(sample)).sum(-1))


def test_squashed_actions_lie_within_the_bounds_however_far_the_sample_is():
    ours = squashed(torch.zeros(2 * D))
    far = torch.tensor([[60.0, 60.0], [-60.0, -60.0]], requires_grad=True)
    torch.testing.assert_close(ours.action(far), torch.stack([CENTER + HALF_WIDTH, CENTER - HALF_WIDTH]))
    # log(1 - tanh^2 u) is log 4 - 2|u| that far out.
    expected = -0.5 * 2 * 60.0**2 - math.log(2 * math.pi) - HALF_WIDTH.log().sum().item() - 2 * (math.log(4) - 120)
    torch.testing.assert_close(ours.log_prob(far), torch.full((2,), expected))
    ours.log_prob(far).sum().backward()
    assert far.grad.isfinite().all()


@pytest.mark.parametrize("std", [0.01, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("mean", [0.0, 0.7, -2.5])
def test_squashed_entropy_equals_numerical_integration(mean, std):
    params = torch.tensor([mean, mean, math.log(std), math.log(std)], dtype=torch.float64)
    u = torch.linspace(mean - 12 * std, mean + 12 * std, 200_001, dtype=torch.float64)
    normal = torch.distributions.Normal(mean, std)
    log_slope = torch.distributions.TanhTransform().log_abs_det_jacobian(u, u.tanh())
    one = torch.trapezoid(normal.log_prob(u).exp() * (log_slope - normal.log_prob(u)), u)
    expected = 2 * one + HALF_WIDTH.double().log().sum()
    # The kink of |u| makes a wide Gaussian the hardest for quadrature.
    torch.testing.assert_close(squashed(params).entropy(), expected, rtol=0, atol=1e-3 if std < 3 else 0.03)


def test_squashing_does_not_change_the_kl():
    old, new = torch.randn(2, T, N, 2 * D)
    for part, kl in squashed(old).kl(squashed(new)).items():
        assert torch.equal(kl, Gaussian(old).kl(Gaussian(new))[part])


def test_only_squashing_makes_the_action_another_than_the_sample():
    params = torch.randn(T, N, 2 * D)
    for distribution in (Gaussian(params), Categorical(params)):
        sample = distribution.sample()
        assert distribution.action(sample) is sample
    torch.testing.assert_close(
        squashed(params).action(squashed(params).mode()), CENTER + HALF_WIDTH * params[..., :D].tanh()
    )


SIZES = [3, 2, 4]


def test_several_choices_are_independent_ones():
    params, other = torch.randn(2, T, N, sum(SIZES))
    ours, new = MultiCategorical(params, SIZES), MultiCategorical(other, SIZES)
    theirs = [categorical(part) for part in params.split(SIZES, -1)]
    sample = ours.sample()
    assert sample.shape == ours.mode().shape == (T, N, 3)
    assert sample.dtype == torch.int64
    torch.testing.assert_close(
        ours.log_prob(sample), sum(one.log_prob(part) for one, part in zip(theirs, sample.unbind(-1), strict=True))
    )
    torch.testing.assert_close(ours.entropy(), sum(one.entropy() for one in theirs))
    divergences = [
        torch.distributions.kl_divergence(one, categorical(part))
        for one, part in zip(theirs, other.split(SIZES, -1), strict=True)
    ]
    torch.testing.assert_close(ours.kl(new)["kl"], sum(divergences))
    assert torch.equal(ours.mode()[..., 2], params[..., 5:].argmax(-1))
    many = MultiCategorical(params[0, 0].expand(20_000, -1), SIZES).sample()
    for column, one in enumerate(theirs):
        frequency = torch.bincount(many[:, column], minlength=SIZES[column]) / len(many)
        torch.testing.assert_close(frequency, one.probs[0, 0], rtol=0, atol=0.015)


# The logit of the mode, and the logarithm of the concentration.
BETAS = [(0.0, -5.0), (0.0, 0.0), (1.5, 2.0), (-3.0, 3.0), (4.0, 1.0), (0.3, 6.0), (0.0, 9.0)]
LOW, WIDTH = -2.0, 5.0


def beta(logit: float, log_concentration: float) -> tuple[Beta, scipy.stats.rv_continuous]:
    """Ours, and scipy's of the same alpha and beta, over the same range."""
    mode, excess = 1 / (1 + math.exp(-logit)), math.exp(log_concentration)
    params = torch.tensor([logit, log_concentration])
    theirs = scipy.stats.beta(1 + excess * mode, 1 + excess * (1 - mode), LOW, WIDTH)
    return Beta(params, torch.tensor([LOW]), torch.tensor([WIDTH])), theirs


@pytest.mark.parametrize(("logit", "log_concentration"), BETAS)
def test_beta_equals_scipys(logit, log_concentration):
    ours, theirs = beta(logit, log_concentration)
    sample = torch.linspace(0.01, 0.99, 50)[:, None]
    expected = theirs.logpdf(ours.action(sample).numpy().astype(np.float64)).squeeze(-1)
    np.testing.assert_allclose(ours.log_prob(sample).numpy(), expected, rtol=1e-4, atol=1e-3)
    assert ours.entropy().item() == pytest.approx(theirs.entropy(), abs=1e-4)
    assert LOW <= ours.action(ours.mode()).item() <= LOW + WIDTH
    best = scipy.optimize.minimize_scalar(
        lambda x: -theirs.logpdf(x), bounds=(LOW, LOW + WIDTH), method="bounded", options={"xatol": 1e-8}
    )
    if log_concentration > -4:  # else it is flat
        assert ours.action(ours.mode()).item() == pytest.approx(best.x, abs=1e-3)


@pytest.mark.parametrize(("logit", "log_concentration"), BETAS)
def test_beta_samples_follow_scipys(logit, log_concentration):
    ours, theirs = beta(logit, log_concentration)
    many = Beta(ours.params.expand(20_000, 2), ours.low, ours.width)
    sample = many.sample()
    assert not sample.requires_grad
    assert ((sample > 0) & (sample < 1)).all()
    test = scipy.stats.kstest(many.action(sample).numpy().squeeze(-1).astype(np.float64), theirs.cdf)
    assert test.pvalue > 1e-3


@pytest.mark.parametrize(("logit", "log_concentration"), BETAS)
def test_beta_kl_equals_the_integral(logit, log_concentration):
    (ours, theirs), (new, others) = beta(logit, log_concentration), beta(0.4, 1.2)
    inside = (LOW + 1e-9, LOW + WIDTH - 1e-9)
    points = [theirs.ppf(q) for q in (0.001, 0.5, 0.999)]
    integral, _ = scipy.integrate.quad(
        lambda x: theirs.pdf(x) * (theirs.logpdf(x) - others.logpdf(x)), *inside, points=points, limit=500
    )
    assert ours.kl(new)["kl"].item() == pytest.approx(integral, rel=1e-4, abs=1e-5)
    assert ours.kl(ours)["kl"].item() == 0


def test_beta_of_several_dimensions_is_the_product():
    params = torch.randn(T, N, 2 * D)
    low, width = torch.tensor([0.0, -1.0]), torch.tensor([3.0, 0.4])
    both = Beta(params, low, width)
    sample = both.sample()
    assert sample.shape == both.mode().shape == (T, N, D)
    each = [Beta(params[..., [d, D + d]], low[[d]], width[[d]]) for d in range(D)]
    expected = sum(one.log_prob(sample[..., [d]]) for d, one in enumerate(each))
    torch.testing.assert_close(both.log_prob(sample), expected)
    torch.testing.assert_close(both.entropy(), sum(one.entropy() for one in each))


def integral(distribution, low: float, high: float) -> float:
    """Of the density over an interval of actions' pre-images, where the action is ``distribution.action``."""
    grid = torch.linspace(low, high, 200_001, dtype=torch.float64)[:, None]
    action = distribution.action(grid).squeeze(-1)
    density = distribution.log_prob(grid).exp()
    return float(torch.trapezoid(density.double(), action.double()))


@pytest.mark.parametrize(
    ("distribution", "bounds"),
    [
        (Gaussian(torch.tensor([0.3, -0.5], dtype=torch.float64)), (-8, 8)),
        (
            SquashedGaussian(
                torch.tensor([0.3, -0.5], dtype=torch.float64),
                torch.tensor([1.0], dtype=torch.float64),
                torch.tensor([2.0], dtype=torch.float64),
                quadrature(),
            ),
            (-8, 8),
        ),
        (
            Beta(
                torch.tensor([0.5, 1.5], dtype=torch.float64),
                torch.tensor([LOW], dtype=torch.float64),
                torch.tensor([WIDTH], dtype=torch.float64),
            ),
            (1e-9, 1 - 1e-9),
        ),
    ],
    ids=["gaussian", "squashed", "beta"],
)
def test_densities_integrate_to_one_and_entropies_to_their_expectations(distribution, bounds):
    assert integral(distribution, *bounds) == pytest.approx(1, abs=1e-6)
    grid = torch.linspace(*bounds, 200_001, dtype=torch.float64)[:, None]
    log_prob, action = distribution.log_prob(grid), distribution.action(grid).squeeze(-1)
    entropy = -torch.trapezoid(log_prob.exp() * log_prob, action)
    assert distribution.entropy().item() == pytest.approx(float(entropy), abs=1e-5)
