"""How far apart simulated times of variants must be for their order to mean something."""

from bench.rank import apart, pairs, problems
from nki_dist.timing.band import APART


def test_the_figure_follows_from_the_published_times():
    """Rounded; a better model may need less before somebody writes that down."""
    assert abs(apart(pairs()) - APART) < 0.02


def test_it_is_where_nine_of_ten_are_in_order():
    """Shares may only grow: a pair in order among wrong ones is luck."""
    wrong = [(1 + n / 100, 0.5) for n in range(10)]
    right = [(1.2 + n / 100, 2.0) for n in range(20)]
    assert apart(wrong + right) == 1.2
    assert apart([(1.0, 2.0), *wrong, *right]) == 1.2
    mixed = [(1.1 + n / 1000, 2.0 if n < 18 else 0.5) for n in range(20)]
    assert apart([*wrong, *mixed, *right]) == 1.1
    assert apart([*wrong, *mixed, *right], 0.95) == 1.2


def test_the_fastest_on_the_model_is_among_the_first_five():
    """Where the model tells variants apart: a problem that is one group is to be measured."""
    for problem, times in problems().items():
        picked, slowest = min(times)[1], max(times)[0]
        if slowest < APART * min(times)[0]:
            continue
        assert sum(measured < picked for _, measured in times) < 5, problem
