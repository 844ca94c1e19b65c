"""Ranks that disagree, are missing or name what isn't there: error type, both call sites, line."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import nki_dist as nki
from nki_dist.errors import (
    CollectiveMismatchError,
    DeadlockError,
    NkiValidationError,
    OutOfBoundsError,
)
from tests.collectives import wrong as W
from tests.collectives.worlds import run

ONE = [1, 1, 1, 1]
LINES = [
    ("one_rank_leaves_out_a_round", [2, 2, 1, 2], 1, DeadlockError, r"rank 2 core 0 has finished"),
    ("one_rank_leaves_out_a_round", [1, 0, 1, 1], 2, DeadlockError, r"rank 1 core 0 has finished"),
    ("then_another_operation", [2, 1, 2, 2], 1, CollectiveMismatchError, r"all_reduce.*all_gather"),
    ("then_another_operation", [1, 1, 1, 0], 2, CollectiveMismatchError, r"all_reduce.*all_gather"),
    ("then_another_reduction", [1, 1, 2, 1], 1, CollectiveMismatchError, r"reduce=add.*=maximum"),
    ("then_other_shapes", [0, 1, 1, 1], 1, CollectiveMismatchError, r"\(3, 4\).*\(1, 4\)"),
    ("then_another_dtype", [0, 1, 1, 1], 1, CollectiveMismatchError, r"float32.*int32"),
    (
        "then_other_groups",
        [1, 0, 0, 1],
        1,
        CollectiveMismatchError,
        r"group=\[0, 1\].*group=\[\d, ",
    ),
    (
        "only_the_sender_permutes",
        [1, 0, 1, 1],
        1,
        CollectiveMismatchError,
        r"sent rank 1 core 0 1 ",
    ),
    ("only_the_sender_permutes", [0, 1, 1, 1], 1, DeadlockError, r"rank 1 core 0 waits.* rank 0"),
    ("cores_call_different_collectives", ONE, 2, CollectiveMismatchError, r"core 1.*add.*maximum"),
    ("cores_name_different_tensors", ONE, 2, CollectiveMismatchError, r"tensors="),
    ("one_core_alone", ONE, 2, DeadlockError, r"core 1 waits in ncc.all_reduce.*core 0"),
    ("kinds_of_hbm_mixed", ONE, 2, NkiValidationError, r"mixes tensors of the core"),
    ("rank_without_group", ONE, 1, NkiValidationError, r"rank 2 is in no group.*4 ranks"),
    ("rank_beyond_the_world", ONE, 1, NkiValidationError, r"names rank 4.*ranks 0 to 3"),
    ("pair_beyond_the_world", ONE, 1, NkiValidationError, r"names rank 7.*ranks 0 to 3"),
    ("ring_register_of_another_group", ONE, 1, NkiValidationError, r"rank 2 is in no group"),
    ("rank_used_beyond_a_table", ONE, 1, OutOfBoundsError, r"index [23] is outside \[0, 2\)"),
]


def marked(kernel):
    """`wrong.py:line` of each marked line of a kernel."""
    lines, first = inspect.getsourcelines(kernel.fn)
    return [f"wrong.py:{first + n}" for n, line in enumerate(lines) if "# HERE" in line]


def arguments(counts):
    return np.arange(12, dtype=np.float32).reshape(3, 4), np.array([counts], np.int32)


def go(name, counts, lnc):
    return run(getattr(W, name), 4, *arguments(counts), lnc=lnc)


@pytest.mark.parametrize(("name", "counts", "lnc", "error", "message"), LINES)
def test_in_process(name, counts, lnc, error, message):
    with pytest.raises(error, match=re.compile(message, re.DOTALL)) as caught:
        go(name, counts, lnc)
    for line in marked(getattr(W, name)):
        assert line in str(caught.value)
    if marked(getattr(W, name)):
        assert any(caught.value.location.endswith(line) for line in marked(getattr(W, name)))


def test_equal_counts_are_fine():
    """The same kernels without the mistake, so that it is the mistake that is reported."""
    for name in ("one_rank_leaves_out_a_round", "then_another_operation", "then_other_groups"):
        assert len(go(name, [2, 2, 2, 2], 2)) == 4


@pytest.fixture(scope="module")
def actors():
    """Four ranks of two cores in four processes; it goes on working after each failure."""
    with nki.World(ranks=4, lnc=2, host="ray", cores_per_actor=2) as world:
        yield world


@pytest.mark.parametrize("n", [0, 2, 7, 8, 10, 14])
def test_on_ray(actors, n):
    name, counts, _, error, message = LINES[n]
    with pytest.raises(error, match=re.compile(message, re.DOTALL)) as caught:
        actors.run(getattr(W, name), *arguments(counts))
    assert any(caught.value.location.endswith(line) for line in marked(getattr(W, name)))
