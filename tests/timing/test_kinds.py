"""Sums by kind: to the bit those of a plain loop, whatever NumPy does with long columns."""

import numpy as np

from nki_dist.timing.kinds import added, sums


def test_sums_are_those_of_a_loop_to_the_bit():
    random = np.random.default_rng(7)
    which = random.integers(0, 3, 10_001)
    values = random.random(10_001) * 10.0 ** random.integers(-9, 9, 10_001)
    plain = [0.0, 0.0, 0.0, 0.0]
    in_turn = 0.125
    for n, value in zip(which.tolist(), values.tolist(), strict=True):
        plain[n] += value
        in_turn += value
    assert sums(which, values, 4) == plain
    assert added(0.125, values) == in_turn
    assert sums([], [], 2) == [0.0, 0.0] and added(0.5, []) == 0.5
