"""Rows in processes of their own: answers, refusals, limits; and one row of each family."""

import os
import time

import pytest

from bench.accuracy import simulate
from bench.accuracy.checkouts import VARIABLE
from bench.accuracy.page import RESULTS
from bench.accuracy.rows import DATA, all_rows, chosen, read_results
from bench.accuracy.simulate import Limits, each, estimate, result_of
from tests.accuracy.fixtures import row

LIMITS = Limits(60.0, 8)


def answers(ask, rows, jobs=2, limits=LIMITS):
    return {r.id: (answer, error) for r, answer, error in each(ask, rows, jobs, limits)}


def test_every_row_is_answered_in_a_process_of_its_own():
    rows = [row(f"a-{n}") for n in range(5)]
    found = answers(lambda row: (row.id, os.getpid()), rows)
    assert [found[r.id][0][0] for r in rows] == [r.id for r in rows]
    assert len({found[r.id][0][1] for r in rows} - {os.getpid()}) == 5


def test_what_goes_wrong_is_the_answer():
    def ask(row):
        if row.id == "a-1":
            raise ValueError("no\n such thing")
        if row.id == "a-2":
            raise SystemExit("enough")
        if row.id == "a-3":
            os._exit(7)
        return 1.0

    found = answers(ask, [row(f"a-{n}") for n in range(4)])
    assert found["a-0"] == (1.0, "")
    assert found["a-1"] == (None, "ValueError: no such thing")
    assert found["a-2"] == (None, "SystemExit: enough")
    assert found["a-3"] == (None, "its process ended with 7 (limit: 8 GiB)")


def test_a_row_that_takes_too_long_ends_alone():
    def ask(row):
        time.sleep(600 if row.id == "a-0" else 0)
        return row.id

    found = answers(ask, [row("a-0"), row("a-1")], jobs=1, limits=Limits(0.5, 8))
    assert found == {"a-0": (None, "over 0.5 s"), "a-1": ("a-1", "")}


def test_memory_is_limited():
    def ask(row):
        return len(bytearray(9 << 30))

    assert answers(ask, [row("a-0")])["a-0"] == (None, "MemoryError:")


def test_a_refused_kernel_is_a_result_without_a_time(monkeypatch):
    def refuse(row):
        raise RuntimeError("not this one")

    monkeypatch.setattr(simulate, "result_of", refuse)
    ((_, result),) = estimate([row("a-0")], 1, LIMITS)
    assert (result.device_us, result.error) == (0.0, "RuntimeError: not this one")


FAMILIES = {row.family: row for row in sorted(chosen(all_rows()), key=lambda r: -r.measured_us)}


@pytest.mark.slow
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no checkouts of kernels")
@pytest.mark.parametrize("family", FAMILIES)
def test_one_row_of_each_family_takes_what_is_stored(family):
    """The shortest one; if the model has changed, run python -m bench.accuracy --run."""
    quick = FAMILIES[family]
    ((_, result, error),) = each(result_of, [quick], 1, Limits())
    assert not error
    kept = read_results(DATA / RESULTS).get(quick.id)
    assert result.device_us > 0 and kept is not None
    assert result.device_us == pytest.approx(kept.device_us, rel=1e-6), quick.id
