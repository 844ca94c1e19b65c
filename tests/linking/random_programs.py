"""Random programs of small tiles: what instructions share, and what orders them, in all mixtures.

Parts of tiles that overlap or don't, PSUM that matmuls add to, accumulator registers, random
numbers, registers, run-time addresses, offsets in tensors, loops, prints and failures.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl

N = 32  # partitions, and elements in each
TILES = 5
LEAST, MOST = 6, 40  # steps
FAILS = 0.1  # of gathers


def data() -> list[np.ndarray]:
    """The arguments of every program: numbers, and row numbers that leave room for eight more."""
    rng = np.random.default_rng(7)
    a = rng.uniform(0.5, 2, (N, N)).astype(np.float32)
    return [a, rng.integers(0, N - 8, (N, 1)).astype(np.int32)]


def random_kernel(seed: int) -> Callable[..., Any]:
    """The program of that number."""

    def kernel(a, rows):
        rng = random.Random(seed)
        out = nl.ndarray((TILES, N, N), dtype=nl.float32, buffer=nl.shared_hbm)
        program = _Program(rng, a, rows)
        for _ in range(rng.randrange(LEAST, MOST)):
            if rng.random() < 0.06:
                for n in nl.dynamic_range(2):
                    program.rounds = n
                    for _ in range(rng.randrange(1, 5)):
                        program.step()
                program.rounds = None
            else:
                program.step()
        for n, tile in enumerate(program.tiles):
            nisa.dma_copy(dst=out[n], src=tile)
        return out

    kernel.__name__ = f"random_{seed}"
    return kernel


class _Program:
    """What its steps work on.

    Attributes:
        rounds: the register of the loop that is open.
    """

    def __init__(self, rng: random.Random, a: Any, rows: Any) -> None:
        self.rng, self.a, self.rows = rng, a, rows
        self.rounds: Any = None
        dtypes = [nl.bfloat16 if rng.random() < 0.2 else nl.float32 for _ in range(TILES)]
        self.tiles = [_tile(dtype) for dtype in dtypes]
        for tile in self.tiles:
            nisa.dma_copy(dst=tile, src=a)
        self.index = _tile(nl.int32, 1)
        nisa.dma_copy(dst=self.index, src=rows)
        self.sums = [_tile(nl.float32, buffer=nl.psum) for _ in range(2)]
        self.table = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.private_hbm)
        nisa.dma_copy(dst=self.table, src=a)
        for total in self.sums:
            nisa.memset(dst=total, value=0)

    def step(self) -> None:
        """One more instruction, or a few."""
        self.rng.choice(_STEPS)(self)

    def part(self) -> slice:
        start = self.rng.randrange(N - 1)
        step = self.rng.choice((1, 1, 1, 2, 3))
        return slice(start, self.rng.randrange(start + 1, N + 1), step)

    def tile(self) -> Any:
        return self.rng.choice(self.tiles)

    def parts(self, count: int) -> list[Any]:
        """The same part of so many tiles."""
        part = self.part() if self.rng.random() < 0.7 else slice(0, N)
        return [self.tile()[:, part] for _ in range(count)]

    def column(self, tile: Any) -> Any:
        at = self.rng.randrange(N)
        return tile[:, at : at + 1]


def _tile(dtype: Any, columns: int = N, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray((N, columns), dtype=dtype, buffer=buffer)


def _load(p: _Program) -> None:
    part = p.part()
    nisa.dma_copy(dst=p.tile()[:, part], src=p.rng.choice((p.a, p.table))[:, part])


def _store(p: _Program) -> None:
    part = p.part()
    nisa.dma_copy(dst=p.table[:, part], src=p.tile()[:, part])


def _set(p: _Program) -> None:
    nisa.memset(dst=p.parts(1)[0], value=p.rng.random())


def _copy(p: _Program) -> None:
    dst, src = p.parts(2)
    nisa.tensor_copy(dst=dst, src=src)


def _combine(p: _Program) -> None:
    dst, one, two = p.parts(3)
    nisa.tensor_tensor(dst, one, two, op=p.rng.choice((nl.maximum, nl.subtract, nl.multiply)))


def _scale(p: _Program) -> None:
    dst, src = p.parts(2)
    column = _tile(nl.float32, 1)
    nisa.tensor_copy(column, p.column(p.tile()))
    nisa.tensor_scalar(dst, src, nl.multiply, column)


def _reduce(p: _Program) -> None:
    nisa.tensor_reduce(dst=p.column(p.tile()), op=nl.maximum, data=p.parts(1)[0], axis=1)


def _activate(p: _Program) -> None:
    dst, src = p.parts(2)
    nisa.activation(dst=dst, op=p.rng.choice((nl.tanh, nl.sigmoid)), data=src)


def _accumulate(p: _Program) -> None:
    dst, src = p.parts(2)
    command = p.rng.choice((nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce))
    total = _tile(nl.float32, 1)
    nisa.activation(
        dst=dst, op=nl.tanh, data=src, reduce_op=nl.add, reduce_res=total, reduce_cmd=command
    )
    nisa.tensor_copy(p.column(p.tile()), total)


def _transpose(p: _Program) -> None:
    source = _tile(nl.float32)
    nisa.tensor_copy(source, p.tile())
    product = _tile(nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=product, data=source)
    nisa.tensor_copy(p.tile(), product)


def _multiply(p: _Program) -> None:
    factors = [_tile(nl.float32), _tile(nl.float32)]
    for factor in factors:
        nisa.tensor_scalar(factor, p.tile(), nl.multiply, 0.125)
    total, part = p.rng.choice(p.sums), p.part() if p.rng.random() < 0.4 else slice(0, N)
    for _ in range(p.rng.randrange(1, 4)):
        stationary, moving = p.rng.choice(factors), p.rng.choice(factors)
        nisa.nc_matmul(dst=total[:, part], stationary=stationary, moving=moving[:, part])


def _sum(p: _Program) -> None:
    part = p.part()
    nisa.activation(dst=p.tile()[:, part], op=nl.tanh, data=p.rng.choice(p.sums)[:, part])


def _draw(p: _Program) -> None:
    bits, part, dst = _tile(nl.uint32), p.part(), p.tile()
    nisa.rng(dst=bits, engine=p.rng.choice((nisa.engine.vector, nisa.engine.gpsimd)))
    nisa.tensor_scalar(bits, bits, nl.bitwise_and, 255)
    nisa.tensor_scalar(dst[:, part], bits[:, part], nl.multiply, 1 / 256)


def _choose(p: _Program) -> None:
    """Elements where a predicate says so."""
    mask = _tile(nl.uint8)
    nisa.tensor_scalar(mask, p.tile(), nl.greater, 0.5)
    source = _tile(nl.float32)
    nisa.tensor_copy(source, p.tile())
    dst = next((tile for tile in p.tiles if tile.dtype == nl.float32), source)
    nisa.tensor_copy_predicated(dst=dst, src=source, predicate=mask)


def _at_run_time(p: _Program) -> None:
    """A part that a register, or the round of a loop, says where it begins."""
    start = p.rounds
    if start is None or p.rng.random() < 0.3:
        row = p.rng.randrange(N)
        start = nisa.register_alloc(0)
        nisa.register_load(start, p.index[row : row + 1, 0:1])
    width, at = p.rng.choice((1, 3, 8)), p.rng.randrange(N - 8)
    chosen, fixed = nl.ds(start, width), slice(at, at + width)
    if p.rng.random() < 0.5:
        nisa.tensor_copy(dst=p.tile()[:, fixed], src=p.tile()[:, chosen])
    else:
        nisa.dma_copy(dst=p.tile()[:, chosen], src=p.a[:, fixed])


def _offset(p: _Program) -> Any:
    """Rows of the table in another order, or one that isn't there."""
    moved = _tile(nl.int32, 1)
    far = N if p.rng.random() < FAILS else p.rng.randrange(8)
    nisa.tensor_scalar(moved, p.index, nl.add, far)
    return p.table.ap([[N, N], [1, N]], vector_offset=moved, indirect_dim=0)


def _gather(p: _Program) -> None:
    nisa.dma_copy(dst=p.tile(), src=_offset(p))


def _scatter(p: _Program) -> None:
    nisa.dma_copy(dst=_offset(p), src=p.tile())


def _reindex(p: _Program) -> None:
    nisa.iota(
        dst=p.index, pattern=[[0, 1]], offset=p.rng.randrange(-7, 0) + 8, channel_multiplier=0
    )


def _print(p: _Program) -> None:
    nl.device_print("part", p.column(p.tile()))


_STEPS = [_load, _store, _set, _copy, _copy, _combine, _combine, _scale, _reduce, _activate]
_STEPS += [_accumulate, _accumulate, _transpose, _multiply, _multiply, _sum, _sum, _draw, _choose]
_STEPS += [_at_run_time, _at_run_time, _gather, _scatter, _reindex, _print]
