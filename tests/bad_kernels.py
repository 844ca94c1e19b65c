"""Kernels that are wrong in one statement each, marked `# BAD`; test_bad_input says how."""

from __future__ import annotations

import inspect
from typing import Any

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

F32 = nl.float32


def bad_line(kernel: Any, mark: str = "BAD") -> str:
    """`file:line` of the statement marked in the kernel's source (of its first line)."""
    function = getattr(kernel, "fn", kernel)
    lines, first = inspect.getsourcelines(function)
    found = [first + n for n, text in enumerate(lines) if f"# {mark}" in text]
    assert len(found) == 1, f"{function.__name__} has {len(found)} lines marked {mark}"
    return f"{inspect.getsourcefile(function)}:{found[0]}"


def tile(*shape: int, dtype: Any = F32, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def zeros(*shape: int, dtype: Any = F32) -> Any:
    made = tile(*shape, dtype=dtype)
    nisa.memset(dst=made, value=0)
    return made


@nki.jit
def too_many_partitions(x):
    t = nl.ndarray((129, 8), dtype=F32, buffer=nl.sbuf)  # BAD
    nisa.memset(dst=t, value=0)
    return x


@nki.jit
def psum_tile_over_a_bank(x):
    stationary, moving = zeros(128, 96), zeros(128, 513)
    p = tile(96, 513, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=stationary, moving=moving)  # BAD
    return x


@nki.jit
def sbuf_over_capacity(x):
    small = nl.ndarray((128, 16), dtype=F32, buffer=nl.sbuf, name="small")
    first = nl.ndarray((128, 20000), dtype=F32, buffer=nl.sbuf, name="first")
    second = nl.ndarray((128, 16000), dtype=F32, buffer=nl.sbuf, name="second")
    third = nl.ndarray((128, 24000), dtype=F32, buffer=nl.sbuf, name="third")  # BAD
    for t in (small, first, second, third):
        nisa.memset(dst=t, value=1)
    out = nl.ndarray((128, 16), dtype=F32, buffer=nl.shared_hbm)
    for t in (first, second, third):
        nisa.tensor_tensor(dst=small, data1=small, data2=t[:, 0:16], op=nl.add)
    nisa.dma_copy(dst=out, src=small)
    return out


@nki.jit
def one_tile_over_capacity(x):
    t = nl.ndarray((128, 60000), dtype=F32, buffer=nl.sbuf)  # BAD
    nisa.memset(dst=t, value=0)
    return x


@nki.jit
def psum_over_capacity(x):
    banks = [zeros_psum(512) for _ in range(9)]
    total = zeros(128, 512)
    for bank in banks:
        nisa.tensor_tensor(dst=total, data1=total, data2=bank, op=nl.add)
    out = nl.ndarray((128, 512), dtype=F32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=total)
    return out


def zeros_psum(columns: int) -> Any:
    made = nl.ndarray((128, columns), dtype=F32, buffer=nl.psum)  # BAD
    nisa.memset(dst=made, value=0)
    return made


@nki.jit
def integer_matmul(x):
    a = zeros(128, 64, dtype=nl.int32)
    p = tile(64, 64, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=a, moving=a)  # BAD
    return x


@nki.jit
def unknown_dtype(x):
    t = nl.ndarray((128, 8), dtype="float64", buffer=nl.sbuf)  # BAD
    nisa.memset(dst=t, value=0)
    return x


@nki.jit
def other_number_of_elements(x):
    t, u = zeros(128, 8), tile(128, 9)
    nisa.tensor_copy(dst=u, src=t)  # BAD
    return x


@nki.jit
def dma_of_other_number_of_elements(x):
    t = tile(60, 8)
    nisa.dma_copy(dst=t, src=x[0:60, 0:7])  # BAD
    return x


@nki.jit
def matmul_operand_in_hbm(x):
    p = tile(128, 128, buffer=nl.psum)
    nisa.nc_matmul(dst=p, stationary=x, moving=x)  # BAD
    return x


@nki.jit
def matmul_into_sbuf(x):
    a = zeros(128, 64)
    nisa.nc_matmul(dst=tile(64, 64), stationary=a, moving=a)  # BAD
    return x


@nki.jit
def misspelt_keyword(x):
    t = tile(128, 8)
    nisa.memset(dst=t, valeu=0)  # BAD
    return x


@nki.jit
def misspelt_keyword_of_nl(x):
    return nl.ndarray((128, 8), dtype=F32, bufer=nl.sbuf)  # BAD


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
def unknown_operator(x):
    t = zeros(128, 8)
    nisa.tensor_tensor(dst=t, data1=t, data2=t, op="addd")  # BAD
    return x


@nki.jit
def returns_a_number(x):
    return 17  # BAD


@nki.jit
def returns_a_numpy_array(x):
    import numpy as np

    return {"a": x, "b": np.zeros(3)}  # BAD


@nki.jit
def returns_sbuf(x):
    return nl.zeros((128, 8), dtype=F32, buffer=nl.sbuf)  # BAD


@nki.jit
def needs_two(x, y):
    return x


@nki.jit
def branches_on_tile(x):
    t = zeros(1, 1)
    if t:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def branches_on_comparison(x):
    t = zeros(4, 4)
    if t > 0:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def branches_on_equality(x):
    t = zeros(4, 4)
    if t == 0:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def branches_on_sliced_input(x):
    t = zeros(4, 4)
    if x[0:1, 0:1]:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def branches_on_input_comparison(x):
    t = zeros(4, 4)
    while x[0, 0] < 3:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def converts_a_tile(x):
    t = zeros(1, 1)
    n = int(t)  # BAD
    return x[n]


@nki.jit
def uses_a_tile_in_range(x):
    t = zeros(1, 1, dtype=nl.int32)
    for _ in range(t):  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def branches_on_register(x):
    r = nisa.register_alloc(3)
    t = zeros(4, 4)
    if r:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def compares_register(x):
    r = nisa.register_alloc(3)
    t = zeros(4, 4)
    if r > 2:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def equates_register(x):
    r = nisa.register_alloc(3)
    t = zeros(4, 4)
    if r == 2:  # BAD
        nisa.memset(dst=t, value=1)
    return x


@nki.jit
def one_core_misses_the_barrier(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 1:
        nisa.core_barrier(data=out, cores=(0, 1))  # BAD
    t = tile(*x.shape)
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=out, src=t)  # LAST
    return out


@nki.jit
def one_core_waits_elsewhere(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = zeros(*x.shape)
    if nl.program_id(0) == 0:
        nisa.core_barrier(data=out, cores=(0, 1))  # BAD
    else:
        nisa.sendrecv(t, t, 0, 0, 0)  # OTHER
    nisa.dma_copy(dst=out, src=t)
    return out


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
def wrong_memory_name(x):
    return nl.ndarray((128, 8), dtype=F32, buffer="sram")  # BAD


@nki.jit
def wrong_in_a_loop(x):
    for width in (4, 5, 6, 7):
        t = zeros(16, width)
        nisa.tensor_copy(dst=tile(16, 6), src=t[:, 0 : min(width, 6)])  # BAD
    return x
