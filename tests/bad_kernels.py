"""Kernels that are wrong in one statement each, marked `# BAD`; test_bad_input says how."""

from __future__ import annotations

import inspect
from typing import Any

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

F32 = nl.float32


def bad_line(kernel: Any) -> str:
    """`file:line` of the statement marked in the kernel's source (of its first line)."""
    function = getattr(kernel, "fn", kernel)
    lines, first = inspect.getsourcelines(function)
    found = [first + n for n, text in enumerate(lines) if "# BAD" in text]
    assert len(found) == 1, f"{function.__name__} has {len(found)} lines marked BAD"
    return f"{inspect.getsourcefile(function)}:{found[0]}"


def tile(*shape: int, dtype: Any = F32, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def zeros(*shape: int, dtype: Any = F32) -> Any:
    made = tile(*shape, dtype=dtype)
    nisa.memset(dst=made, value=0)
    return made


@nki.jit
def misspelt_keyword(x):
    t = tile(128, 8)
    nisa.memset(dst=t, valeu=0)  # BAD
    return x


@nki.jit
def too_few_arguments(x):
    nisa.tensor_copy(tile(128, 8))  # BAD
    return x


@nki.jit
def too_many_arguments(x):
    t = zeros(128, 8)
    nisa.reciprocal(t, t, None, "x", 3, 4, 5)  # BAD
    return x


@nki.jit
def not_a_tensor(x):
    nisa.tensor_copy(dst=tile(128, 8), src=[1, 2, 3])  # BAD
    return x


@nki.jit
def returns_a_numpy_array(x):
    import numpy as np

    return {"a": x, "b": np.zeros(3)}  # BAD


@nki.jit
def needs_two(x, y):
    return x


@nki.jit
def branches_on_comparison(x):
    t = zeros(4, 4)
    if t > 0:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def equates_register(x):
    r = nisa.register_alloc(3)
    t = zeros(4, 4)
    if r == 2:  # BAD
        nisa.memset(dst=t, value=1)
    return x


class OwnComplaint(Exception):
    """An exception of the kernel's author."""


OWN = OwnComplaint("exactly this object")


@nki.jit
def raises_its_own(x):
    t = zeros(4, 4)
    helper_that_raises(t)
    return x


def helper_that_raises(t: Any) -> None:
    raise OWN  # BAD


@nki.jit
def own_exception_on_core_one(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = tile(*x.shape)
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=out, src=t)
    if nl.program_id(0) == 1:
        raise ZeroDivisionError("from core 1")  # BAD
    return out


@nki.jit
def single_index_out_of_bounds(x):
    t = tile(1, 128)
    nisa.dma_copy(dst=t, src=x[128])  # BAD
    return x


@nki.jit
def reads_what_nobody_wrote(x):
    out = nl.ndarray((128, 8), dtype=F32, buffer=nl.shared_hbm)
    t = tile(128, 8)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def wrong_in_a_loop(x):
    for width in (4, 5, 6, 7):
        t = zeros(16, width)
        nisa.tensor_copy(dst=tile(16, 6), src=t[:, 0 : min(width, 6)])  # BAD
    return x
