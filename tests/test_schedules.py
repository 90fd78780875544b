"""How numbers change in the course of a run."""

import pytest

from minerva.schedules import SCHEDULES, factor


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", {0: 1, 0.5: 1, 1: 1}),
        ("linear", {0: 1, 0.25: 0.75, 1: 0}),
        ("cosine", {0: 1, 1 / 3: 0.75, 0.5: 0.5, 2 / 3: 0.25, 1: 0}),
        ("warmup_cosine", {0: 0, 0.1: 0.5, 0.2: 1, 0.6: 0.5, 1: 0}),
    ],
)
def test_the_numbers_worked_out_by_hand(schedule, expected):
    assert {progress: factor(schedule, progress, 0.2) for progress in expected} == pytest.approx(expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0, 0.05, 0.99])
def test_it_is_between_0_and_1(schedule, warmup):
    assert all(0 <= factor(schedule, i / 1000, warmup) <= 1 for i in range(1001))
