"""Which variables the body of a loop statement reads and sets, by the code."""

from __future__ import annotations

import dis
import sys

import pytest

from nki_dist.compiler.loop_scope import _accesses


def summed(rounds, total, part):
    for _ in rounds:
        total = total + part
    return rounds


def _statement() -> int:
    return next(i.offset for i in dis.get_instructions(summed) if i.opname == "FOR_ITER")


def test_accesses_of_a_body_in_the_order_of_the_code():
    found = list(_accesses(summed.__code__, _statement()))
    assert found == [("STORE", "_"), ("LOAD", "total"), ("LOAD", "part"), ("STORE", "total")]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="FOR_ITER keeps no memory")
def test_a_place_within_an_instruction_is_that_instruction():
    """Where Python 3.12 says that a frame is whose FOR_ITER it has specialised for a generator."""
    at = _statement()
    assert [*_accesses(summed.__code__, at + 2)] == [*_accesses(summed.__code__, at)] != []
