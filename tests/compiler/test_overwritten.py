"""Reads of placed tensors after their bytes were overwritten through another one."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.compiler.compiling import compiled, line_of

INPUT = ((64, 40), np.float32)


def _tile(name, address, shape=(64, 40), dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf, name=name, address=address)


def _out(a):
    return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)


def test_reading_an_overwritten_tensor_names_both_and_their_lines() -> None:
    def kernel(a):
        out = _out(a)
        one = nl.ndarray((64, 40), nl.float32, buffer=nl.sbuf, name="one", address=(0, 0))
        two = nl.ndarray((32, 40), nl.float32, buffer=nl.sbuf, name="two", address=(32, 100))
        nisa.dma_copy(dst=one, src=a)
        nisa.memset(dst=two, value=1)
        nisa.dma_copy(dst=out, src=one)
        nisa.dma_copy(dst=out[0:32], src=two)
        return out

    with pytest.raises(NkiValidationError) as caught:
        compiled(kernel, INPUT)
    text = str(caught.value)
    assert "reads one (64x40 float32 in sbuf) at address (0, 0)" in text
    by = "overwritten through two (32x40 float32 in sbuf) at address (32, 100) by nisa.memset at "
    assert by + line_of(kernel, "memset") in text
    assert line_of(kernel, "one = ") in text and line_of(kernel, "two = ") in text
    assert caught.value.location == line_of(kernel, "src=one")


def test_a_partial_write_through_the_other_loses_only_that_part() -> None:
    def kernel(a, row):
        out = _out(a)
        one, two = _tile("one", (0, 0)), _tile("two", (0, 0), (64, 80), nl.bfloat16)
        nisa.dma_copy(dst=one, src=a)
        nisa.memset(dst=two[:, 0:2], value=1)
        nisa.dma_copy(dst=out[:, row:40], src=one[:, row:40])
        nisa.tensor_copy(dst=two[:, 2:4], src=two[:, 0:2])
        return out

    def clean(a):
        return kernel(a, 1)

    def broken(a):
        return kernel(a, 0)

    with pytest.raises(NkiValidationError, match="overwritten through two"):
        compiled(broken, INPUT)
    compiled(clean, INPUT)


def test_what_was_never_written_is_not_lost() -> None:
    def kernel(a):
        out = _out(a)
        one, two = _tile("one", (0, 0)), _tile("two", (0, 80), (64, 20))
        whole = nl.ndarray(a.shape, a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=one[:, 0:20], src=a[:, 0:20])
        nisa.memset(dst=two, value=1)
        nisa.tensor_copy(dst=whole, src=one)
        nisa.dma_copy(dst=out[:, 0:20], src=whole[:, 0:20])
        nisa.dma_copy(dst=out[:, 20:40], src=two)
        return out

    compiled(kernel, INPUT)


def test_lifetimes_that_do_not_meet_may_share_an_address() -> None:
    def kernel(a):
        out = _out(a)
        for _ in range(5):
            one = _tile("one", (0, 0))
            nisa.dma_copy(dst=one, src=a)
            nisa.dma_copy(dst=out, src=one)
        return out

    compiled(kernel, INPUT)


def test_what_an_iteration_overwrites_is_lost_to_the_next() -> None:
    def kernel(a, repair):
        out = _out(a)
        one = _tile("one", (0, 0))
        nisa.dma_copy(dst=one, src=a)
        for _ in nl.dynamic_range(4):
            if repair:
                nisa.dma_copy(dst=one, src=a)
            nisa.dma_copy(dst=out, src=one)
            two = _tile("two", (0, 0))
            nisa.memset(dst=two, value=1)
            nisa.dma_copy(dst=out, src=two)
        return out

    def broken(a):
        return kernel(a, False)

    def clean(a):
        return kernel(a, True)

    with pytest.raises(NkiValidationError, match="overwritten through two"):
        compiled(broken, INPUT)
    compiled(clean, INPUT)


def test_a_neighbour_that_nobody_wrote_yet_changes_nothing() -> None:
    """`late` lies there from the start of the loop, as all that a loop uses does."""

    def kernel(a):
        out = _out(a)
        late, one, two = (_tile(name, (0, 0)) for name in ("late", "one", "two"))
        for _ in nl.dynamic_range(1):
            nisa.dma_copy(dst=one, src=a)
            nisa.memset(dst=two, value=1)
            nisa.dma_copy(dst=out, src=one)
            nisa.memset(dst=late, value=2)
            nisa.dma_copy(dst=out, src=late)
            nisa.memset(dst=two, value=1)
            nisa.dma_copy(dst=out, src=two)
        return out

    with pytest.raises(NkiValidationError, match=r"reads one .* overwritten through two"):
        compiled(kernel, INPUT)


def test_accumulating_into_an_overwritten_result_is_a_read() -> None:
    def kernel(a, second):
        out = nl.ndarray((40, 40), dtype=nl.float32, buffer=nl.shared_hbm)
        data = nl.ndarray((64, 40), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=data, src=a)
        one = nl.ndarray((40, 40), nl.float32, buffer=nl.psum, name="one", address=(0, 0))
        two = nl.ndarray((40, 40), nl.float32, buffer=nl.psum, name="two", address=(0, 0))
        nisa.nc_matmul(dst=one, stationary=data, moving=data)
        nisa.nc_matmul(dst=two, stationary=data, moving=data)
        nisa.nc_matmul(dst=one, stationary=data, moving=data, accumulate=second)
        copied = nl.ndarray((40, 40), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copied, src=one)
        nisa.dma_copy(dst=out, src=copied)
        return out

    with pytest.raises(NkiValidationError, match="nc_matmul reads one"):
        compiled(lambda a: kernel(a, True), INPUT)
    compiled(lambda a: kernel(a, False), INPUT)
