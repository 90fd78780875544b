import pytest
import torch
from torch import Tensor

from minerva.returns import advantages, discounted_returns, explained_variance, gae
from minerva.types import Rollout

# Four steps of two environments; gamma = lambda = 1/2, so that all numbers are exact.
# Environment 0 terminates at its second step (what follows is worth 0, not 100), environment 1 is cut at its third
# (what follows is worth 8, although the next row's value is 0).
REWARD = torch.tensor([[1.0, 2], [3, 0], [2, 4], [1, -1]])
VALUE = torch.tensor([[1.0, 2], [2, 4], [0, 2], [4, 0]])
NEXT_VALUE = torch.tensor([[2.0, 4], [100, 2], [4, 8], [14, 10]])
TERMINATED = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 0]]).bool()
TRUNCATED = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 0]]).bool()


def test_gae_equals_the_numbers_worked_out_by_hand():
    # delta = r + 1/2 V' - V:
    #   environment 0: 1 + 1 - 1 = 1;  3 + 0 - 2 = 1;   2 + 2 - 0 = 4;  1 + 7 - 4 = 4
    #   environment 1: 2 + 2 - 2 = 2;  0 + 1 - 4 = -3;  4 + 4 - 2 = 6; -1 + 5 - 0 = 4
    # A = delta + 1/4 of the next A, but for the last step of an episode:
    #   environment 0: 1 + 1/4 = 1.25;       1 (terminated);    4 + 4/4 = 5;  4
    #   environment 1: 2 - 1.5/4 = 1.625;   -3 + 6/4 = -1.5;    6 (cut);      4
    advantage, target = gae(REWARD, VALUE, NEXT_VALUE, TERMINATED, TRUNCATED, gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(advantage, torch.tensor([[1.25, 1.625], [1, -1.5], [5, 6], [4, 4]]), rtol=0, atol=0)
    torch.testing.assert_close(target, torch.tensor([[2.25, 3.625], [3, 2.5], [5, 8], [8, 4]]), rtol=0, atol=0)


def test_discounted_returns_equal_the_numbers_worked_out_by_hand():
    # Backwards, G = r + 1/2 of the next G:
    #   environment 0: 1 + 14/2 = 8;   2 + 8/2 = 6;  3 (terminated);          1 + 3/2 = 2.5
    #   environment 1: -1 + 10/2 = 4;  4 + 8/2 = 8 (cut, worth 8 from there); 0 + 8/2 = 4;  2 + 4/2 = 4
    returns = discounted_returns(REWARD, NEXT_VALUE, TERMINATED, TRUNCATED, gamma=0.5)
    torch.testing.assert_close(returns, torch.tensor([[2.5, 4], [3, 4], [6, 8], [8, 4]]), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("estimator", "advantage"),
    [
        ("gae", [[1.25, 1.625], [1, -1.5], [5, 6], [4, 4]]),
        ("dae", [[1, 2], [1, -3], [4, 6], [4, 4]]),
        ("returns", [[1.5, 2], [1, 0], [6, 6], [4, 4]]),
    ],
)
def test_estimators_equal_the_numbers_worked_out_by_hand(estimator, advantage):
    unused = torch.full_like(REWARD, torch.nan)
    rollout = Rollout(
        obs=unused, action=unused, log_prob=unused, policy=unused,
        reward=REWARD, value=VALUE, next_value=NEXT_VALUE, terminated=TERMINATED, truncated=TRUNCATED,
    )  # fmt: skip
    expected = torch.tensor(advantage)
    result, target = advantages(rollout, estimator=estimator, gamma=0.5, gae_lambda=0.5)
    torch.testing.assert_close(result, expected.float(), rtol=0, atol=0)
    torch.testing.assert_close(target, expected + VALUE, rtol=0, atol=0)


def random_rollout(steps: int = 40, num: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Rewards, values, next values, terminations and truncations; about every fifth step ends an episode."""
    generator = torch.Generator().manual_seed(0)
    reward, value, cut_value = torch.randn(3, steps, num, generator=generator)
    following = torch.randn(num, generator=generator)
    end = torch.rand(steps, num, generator=generator)
    terminated, truncated = end < 0.1, (end >= 0.1) & (end < 0.2)
    next_value = torch.where(terminated | truncated, cut_value, torch.cat([value[1:], following[None]]))
    assert terminated[:-1].any()
    assert truncated[:-1].any()
    return reward, value, next_value, terminated, truncated


def lambda_return(rewards: list[float], next_values: list[float], gamma: float, lam: float) -> float:
    """The average of all n-step returns of an episode's steps, of weights (1 - lambda) lambda^(n-1); the rest goes to
    the longest one. ``next_values`` are what was left after each step, of which the n-step return takes the n-th."""
    total, length = 0.0, len(rewards)
    for n in range(1, length + 1):
        n_step = sum(gamma**k * rewards[k] for k in range(n)) + gamma**n * next_values[n - 1]
        total += n_step * (lam ** (length - 1) if n == length else (1 - lam) * lam ** (n - 1))
    return total


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.95, 1.0])
def test_gae_equals_the_average_of_n_step_returns_of_each_episode(lam: float):
    reward, value, next_value, terminated, truncated = random_rollout()
    gamma, (steps, num) = 0.9, reward.shape
    expected = torch.empty_like(reward)
    for i in range(num):
        for t in range(steps):
            last = next((k for k in range(t, steps) if terminated[k, i] or truncated[k, i]), steps - 1)
            left = next_value[t : last + 1, i].tolist()
            if terminated[last, i]:
                left[-1] = 0.0
            expected[t, i] = lambda_return(reward[t : last + 1, i].tolist(), left, gamma, lam)
    advantage, target = gae(reward, value, next_value, terminated, truncated, gamma=gamma, gae_lambda=lam)
    torch.testing.assert_close(target, expected)
    torch.testing.assert_close(advantage, expected - value)


def test_lambda_one_is_the_discounted_return_minus_the_value():
    reward, value, next_value, terminated, truncated = random_rollout()
    advantage, _ = gae(reward, value, next_value, terminated, truncated, gamma=0.97, gae_lambda=1.0)
    returns = discounted_returns(reward, next_value, terminated, truncated, gamma=0.97)
    torch.testing.assert_close(advantage, returns - value)


def test_lambda_zero_is_the_one_step_advantage():
    reward, value, next_value, terminated, truncated = random_rollout()
    advantage, _ = gae(reward, value, next_value, terminated, truncated, gamma=0.97, gae_lambda=0.0)
    one_step = reward + 0.97 * torch.where(terminated, 0.0, next_value) - value
    torch.testing.assert_close(advantage, one_step)


def test_returns_leave_their_arguments_alone():
    arguments = random_rollout()
    copies = [argument.clone() for argument in arguments]
    gae(*arguments, gamma=0.9, gae_lambda=0.9)
    discounted_returns(arguments[0], *arguments[2:], gamma=0.9)
    for argument, copy in zip(arguments, copies, strict=True):
        assert torch.equal(argument, copy)


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        ([1.0, 2, 3, 4], 1.0),
        ([3.5, 4.5, 5.5, 6.5], 1.0),  # a constant offset is not variance
        ([2.5, 2.5, 2.5, 2.5], 0.0),
        # The residual is 0, 0, 0, -4, of variance (1 + 1 + 1 + 9) / 3 = 4; the target's is 5/3; 1 - 12/5.
        ([1.0, 2, 3, 8], -1.4),
    ],
)
def test_explained_variance(prediction: list[float], expected: float):
    target = torch.tensor([1.0, 2, 3, 4])
    assert explained_variance(torch.tensor(prediction), target).item() == pytest.approx(expected, abs=1e-6)


def test_explained_variance_of_a_constant_target_is_nan():
    assert explained_variance(torch.tensor([1.0, 2, 3]), torch.full((3,), 7.0)).isnan()
