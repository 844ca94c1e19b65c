"""Cases of functions that no other case has: offsets in tensors, masks, tables of functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes import ALL, DType
from nki_dist.dtypes.casts import converter
from nki_dist.errors import NkiValidationError
from nki_dist.isa.activations import ACTIVATIONS, MATH
from nki_dist.isa.alu import ALU
from nki_dist.ops.arrays import add_where, cast
from nki_dist.ops.function import conversion
from nki_dist.ops.operation import Operation, op
from nki_dist.ops.place import Place
from tests.isa.effects.cases import BF16, case, hbm, on4, psum, register, t
from tests.isa.effects.running import Case

U32 = nl.uint32
ROWS = [[6, 4], [1, 6]]  # four rows of six elements


def table(dtype: Any = nl.float32) -> Any:
    """Four rows of a table of nine, chosen at run time."""
    return hbm(9, 6, dtype=dtype).ap(ROWS, vector_offset=t(4, 1, dtype=U32), indirect_dim=0)


SKIP = {"oob_mode": nisa.oob_mode.skip}


def _chosen(body: Any, mode: Any) -> Case:
    """Some of the rows to be skipped are outside."""
    index = [3, 0, 99 if mode else 8, 5]
    return case(body, **{f"index of {name}": index for name in ("src", "dst", "srcs")})


def _offsets(dtype: Any = nl.float32, **mode: Any) -> Iterator[Case]:
    yield _chosen(lambda: nisa.dma_copy(t(4, 6), table(dtype), **mode), mode)
    yield _chosen(lambda: nisa.dma_copy(table(dtype), t(4, 6), **mode), mode)


def _added(mode: Any, into: bool) -> Case:
    def body() -> None:
        tile, rows = t(4, 6), table()
        nisa.dma_compute(rows if into else tile, [rows, tile], nl.add, **mode)

    return _chosen(body, mode)


def _columns() -> Any:
    return t(32, 9), t(32, 1, dtype=U32)


def _indirect(out: bool) -> Case:
    def body() -> None:
        tile, index = _columns()
        few, view = t(32, 5), tile.indirect(index, 5)
        nisa.tensor_copy(view if out else few, few if out else view)

    return on4(body, **{"index of src": [3, 0, 8, 5, 1], "index of dst": [3, 0, 8, 5, 1]})


def _transposed(mode: Any) -> Case:
    def body() -> None:
        rows = hbm(20, 16, dtype=BF16).ap(
            [[16, 16], [1, 16]], vector_offset=t(16, 1, dtype=U32), indirect_dim=0
        )
        nisa.dma_transpose(t(16, 16, dtype=BF16), rows, **mode)

    return _chosen(body, mode)


MORE: dict[str, list[Case]] = {
    "dma_copy": [*_offsets(), *_offsets(BF16), *_offsets(**SKIP)],
    "dma_compute": [_added(mode, into) for mode in ({}, SKIP) for into in (False, True)],
    "dma_transpose": [_transposed({}), _transposed(SKIP)],
    "tensor_copy": [_indirect(False), _indirect(True)],
    "tensor_reduce": [
        case(
            lambda: nisa.tensor_reduce(
                t(3, 2, dtype=U32), nl.bitwise_or, t(3, 2, 4, dtype=U32), 2
            )
        )
    ],
    "iota": [
        case(lambda: nisa.iota(t(3, 5, dtype=nl.int32), [[2, 5]], register(), 3)),
    ],
}  # fmt: skip


def masked() -> Case:
    """A matmul that decides at run time, column by column, whether it adds."""

    def body() -> None:
        total, index = psum(32, 9), t(32, 1, dtype=U32)
        nisa.nc_matmul(total.indirect(index, 3), t(32, 32), t(32, 3))

    return on4(body, **{"index of dst": [3, 0, 8]})


# ---- functions by themselves --------------------------------------------------------------------

SHAPE = (3, 8)


def _places(*dtypes: Any, far: bool = False) -> list[Place]:
    """Places of one shape, each in a space of its own; `far` ones have gaps."""
    found = []
    for n, dtype in enumerate(dtypes):
        size = np.dtype(dtype).itemsize * (1 + far)
        found.append(Place(("storage", n), 8 * far, SHAPE, (size * SHAPE[1], size), dtype))
    return found


def by_themselves() -> Iterator[Operation]:
    """Functions of tables, on arrays with and without gaps, and in place."""
    f32 = np.dtype(np.float32)
    for far in (False, True):
        for row in ALU.values():
            for function, dtype in ((row.f32, f32), (row.integer, np.dtype(np.int32))):
                if function is not None:
                    a, b, out = _places(dtype, dtype, dtype, far=far)
                    yield from (op(function, a, b, out), op(function, a, b, a))
        for math in (*ACTIVATIONS.values(), *MATH.values()):
            x, out, param = _places(f32, f32, f32, far=far)
            more = (param,) if math.takes_param else ()
            yield from (op(math.f32, x, out, *more), op(math.f32, x, x, *more))
        a, b, out, mask = _places(f32, f32, f32, bool, far=far)
        yield op(add_where, a, b, mask, out)
        yield op(cast, out, _places(np.int32, far=far)[0])


def conversions() -> Iterator[Operation]:
    """Between all types between which values are converted."""
    for src in ALL:
        for dst in ALL:
            if converts(src, dst):
                inp, out = _places(src.storage, dst.storage, far=src is not dst)
                yield op(conversion(src, dst), out, inp)


def converts(src: DType, dst: DType) -> bool:
    """Whether there is a conversion."""
    try:
        converter(src, dst)
    except NkiValidationError:
        return False
    return True
