"""The intact files that are tampered with: small kernels that between them use every instruction.

Most are the cases of `tests/isa/effects`, one instruction each: its operands are filled from
constants before it, and what it writes is returned. The others have what single instructions don't:
loops, run-time addresses, watched stores, prints, several cores and ranks, Beta 1, widened numbers.

Invariant: every file loads and runs to a result (tests/compiler/test_fuzz.py looks).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compat import beta1
from nki_dist.compat.beta1 import language as beta1_nl
from nki_dist.compiler.saved import dump
from nki_dist.isa.spec import current_tracer
from nki_dist.language.tensor import make
from nki_dist.program import Access, Storage
from nki_dist.program.walk import operands
from tests.collectives import kernels as groups
from tests.compiler import programs
from tests.isa.effects.cases import CASES
from tests.isa.effects.exchanging import RENDEZVOUS
from tests.isa.effects.running import encoded, numbers


@dataclass(frozen=True)
class Intact:
    """A file as the compiler wrote it.

    Attributes:
        name: of the kernel.
        data: the bytes.
        ranks: of the world it is run in.
    """

    name: str
    data: bytes
    ranks: int = 1


@cache
def corpus() -> tuple[Intact, ...]:
    """Every intact file, the same ones each time."""
    return (*_instructions(), *_exchanges(), *_kernels())


def _file(
    name: str, kernel: Any, *arrays: Any, ranks: int = 1, lnc: int = 1, platform: str = "trn2"
) -> Intact:
    with nki.World(ranks, lnc, platform, "inprocess") as world:
        compiled = world.compile(kernel, *arrays)
    return Intact(name, dump(compiled.programs, compiled.inputs), ranks)


# ---- one instruction each ---------------------------------------------------------------------


def _instructions() -> Iterator[Intact]:
    for opcode, cases in CASES.items():
        for n, case in enumerate(cases):
            kernel = _wrapped(case.body, case.values)
            ranks = 2 if opcode == "read_ring_rank_id" else 1  # it names a group of two
            yield _file(f"{opcode} {n}", kernel, ranks=ranks, platform=case.platform)


def _exchanges() -> Iterator[Intact]:
    for opcode, each in RENDEZVOUS.items():
        for n, rendezvous in enumerate(each):

            def body(issue: Callable[[int], Any] = rendezvous.body) -> Any:
                return issue(nl.program_id(0) if nl.program_ndim() else 0)

            kernel = _wrapped(body, rendezvous.values)
            yield _file(f"{opcode} {n}", kernel, ranks=rendezvous.ranks, lnc=rendezvous.cores)


def _wrapped(body: Callable[[], Any], values: Any) -> Callable[[], Any]:
    """A kernel that fills what an instruction reads, issues it, and returns what it wrote."""

    def kernel() -> list[Any]:
        with _filled(values) as wrote:
            body()
        return [_published(s) for s in wrote]

    return kernel


@contextmanager
def _filled(values: Any) -> Iterator[list[Storage]]:
    """Fills the operands of what is issued inside; gives the tensors that were written."""
    trace: Any = current_tracer()
    emit, wrote = trace.emit, []

    def filling(spec: Any, args: dict[str, Any], engine: str) -> Any:
        trace.emit = emit
        for name, a in operands(args):
            index = a.dynamic.source if a.dynamic is not None else None
            for s in (a.storage, index.storage if isinstance(index, Access) else None):
                if s is not None and s.role == "local" and not s.written:
                    _fill(trace, s, values.get(name))
        made = emit(spec, args, engine)
        for name, a in operands(args):
            role = spec.roles.get(name)
            if "w" in getattr(role, "mode", "") and a.storage not in wrote:
                wrote.append(a.storage)
        trace.emit = filling
        return made

    trace.emit = filling
    yield wrote
    trace.emit = emit


def _whole(s: Storage) -> Any:
    return make(s, 0, s.shape, s.strides, s.dtype)


def _fill(trace: Any, s: Storage, given: Any) -> None:
    if s.region.value == "psum":
        return nisa.memset(_whole(s), 0)
    bits = numbers(s.dtype, int(np.prod(s.shape)), s.number)
    if given is not None:
        bits = np.resize(encoded(np.asarray(given).reshape(-1), s.dtype), bits.shape)
    return nisa.dma_copy(_whole(s), trace.constant(bits.reshape(s.shape), s.dtype))


def _published(s: Storage) -> Any:
    """A tensor's contents in shared HBM."""
    out = nl.ndarray(s.shape, dtype=s.dtype, buffer=nl.shared_hbm)
    tile = _whole(s)
    if s.region.value == "psum":
        tile = nl.ndarray(s.shape, dtype=s.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(tile, _whole(s))
    nisa.dma_copy(out, tile)
    return out


# ---- what single instructions don't have --------------------------------------------------------


def _numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    count = int(np.prod(shape))
    return ((np.arange(count) * 37 % 101 - 50) / 16).reshape(shape).astype(dtype)


def _index(*shape: int, below: int) -> np.ndarray:
    return (np.arange(int(np.prod(shape))) * 5 % below).reshape(shape).astype(np.int32)


def countdown(x: Any, start: Any) -> Any:
    """A loop that ends when the data says so, with a tile carried through it."""
    total, left = nl.load(x), nl.load(start)
    one = nl.full((1, 1), 1, dtype=nl.int32)
    count = nisa.register_alloc(left)
    while count:
        nisa.activation(dst=total, op=nl.copy, data=total, scale=0.5)
        nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
        nisa.register_load(count, left)
    return _stored(total)


def columns(x: Any) -> Any:
    """Nested loops over on-chip columns, the inner one as long as the outer says."""
    tile, out = nl.load(x), nl.zeros(x.shape, x.dtype)
    for i in nl.dynamic_range(1, x.shape[1]):
        for j in nl.dynamic_range(0, i, 2):
            here = tile[:, nl.ds(j, 1)]
            nisa.tensor_tensor(out[:, nl.ds(i, 1)], here, tile[:, nl.ds(i, 1)], nl.add)
    return _stored(out)


def indirect(x: Any, index: Any) -> Any:
    """Columns that an index tile chooses, gathered and scattered."""
    tile, chosen, out = nl.load(x), nl.load(index), nl.zeros(x.shape, x.dtype)
    nisa.tensor_copy(out.indirect(chosen, 5), tile.indirect(chosen, 5))
    return _stored(out)


def low(x: Any, w: Any) -> Any:
    """Numbers of low precision in constants, tiles and PSUM."""
    factors = nl.shared_constant(_numbers(6, 8).astype(nl.bfloat16))
    tile, weights, more = nl.load(x), nl.load(w), nl.load(factors)
    sums = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=sums, stationary=tile, moving=weights)
    nisa.nc_matmul(dst=sums, stationary=more, moving=weights)
    result = nl.ndarray((8, 8), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(result, sums)
    return {"sums": _stored(result), "given": x}


def in_place(x: Any) -> Any:
    """Writes its argument and prints it."""
    tile = nl.load(x)
    nl.device_print("tile", tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(x, tile)
    return x


def halves(x: Any) -> Any:
    """Each core stores its half of a tensor they share and loads the other's."""
    rows, me = x.shape[0] // 2, nl.program_id(0)
    shared, out = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2))
    nisa.dma_copy(dst=shared[nl.ds(me * rows, rows)], src=x[nl.ds(me * rows, rows)])
    nisa.core_barrier(data=shared, cores=(0, 1))
    nisa.dma_copy(dst=out[nl.ds(me * rows, rows)], src=shared[nl.ds((1 - me) * rows, rows)])
    return out


def watched(x: Any, index: Any) -> Any:
    """Cores scatter rows to places known at run time, which may be the same ones."""
    rows, columns = x.shape[1:]
    out = nl.ndarray((2 * rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, places = nl.load(x[nl.program_id(0)]), nl.load(index[nl.program_id(0)])
    nisa.dma_copy(dst=out.ap([[columns, rows], [1, columns]], vector_offset=places), src=tile)
    return out


def older(x: Any) -> Any:
    """Beta 1: index arithmetic, a mask, a reduction."""
    out = beta1_nl.ndarray(x.shape, dtype=x.dtype, buffer=beta1_nl.shared_hbm)
    i, j = beta1_nl.arange(8)[:, None], beta1_nl.arange(6)[None, :]
    tile = beta1_nl.load(x[i, j], mask=j < 5)
    rows = beta1_nl.sum(tile[i, beta1_nl.arange(5)[None, :]], axis=1)
    beta1_nl.store(out[i, j], beta1_nl.load(x[i, j]) * 2.0)
    beta1_nl.store(out[i, 0], rows)
    return out


def _stored(tile: Any) -> Any:
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def _kernels() -> Iterator[Intact]:
    yield _file("two cores", programs.two_cores, _numbers(6, 5), _numbers(6, 5), lnc=2)
    yield _file("loops", programs.loops, _numbers(4, 3, 8), np.full((1, 1), 4, np.int32))
    yield _file("gather", programs.gather, _numbers(9, 7), _index(5, 1, below=9))
    yield _file("matmul", programs.matmul, _numbers(16, 12), _numbers(16, 20))
    yield _file("countdown", countdown, _numbers(3, 4), np.full((1, 1), 4, np.int32))
    yield _file("columns", columns, _numbers(4, 6))
    index = _index(16, 1, below=7).astype(np.uint32)
    yield _file("indirect", indirect, _numbers(16, 8), index, platform="trn3")
    yield _file("in place", in_place, _numbers(3, 5))
    low_x, low_w = (_numbers(6, 8).astype(nl.bfloat16) for _ in range(2))
    yield _file("low precision", low, low_x, low_w)
    with _environment("NKI_PRECISE_FP", "0"):
        yield _file("widened", low, low_x, low_w)
        yield _file("widened on two cores", programs.two_cores, low_x, low_w, lnc=2)
    yield _file("Beta 1", beta1.jit(older), _numbers(8, 6))
    yield _file("halves", halves, _numbers(4, 5), lnc=2)
    yield _file("watched", watched, _numbers(2, 3, 4), _index(2, 3, 1, below=6), lnc=2)
    both = [[0, 1]]
    for where in ("hbm", "sbuf"):
        reduced = lambda x, where=where: groups.all_reduce.fn(x, both, nl.add, where)  # noqa: E731
        yield _file(f"ranks, {where}", reduced, _numbers(4, 6), ranks=2)
    on_four = lambda x: groups.all_reduce.fn(x, both, nl.maximum)  # noqa: E731
    yield _file("ranks of two cores", on_four, _numbers(4, 6), ranks=2, lnc=2)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
