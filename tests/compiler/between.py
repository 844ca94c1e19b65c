"""Kernels whose two cores leave something for each other in shared tensors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from tests.compiler.compiling import compiled

X = np.random.default_rng(7).standard_normal((12, 10)).astype(np.float32)
WHOLE = slice(0, 12)


def me() -> int:
    return nl.program_id(0)


def half(core: int, rows: int = 6, columns: int = 10) -> tuple[slice, slice]:
    return slice(core * 6, core * 6 + rows), slice(0, columns)


def shared(shape: tuple[int, ...] = X.shape) -> nl.NkiTensor:
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def put(dst, x, place) -> None:
    nl.store(dst[place], nl.load(x[place]))


def give(out, handed, place) -> None:
    """Loads what the other core left, and stores it to this core's part of what is returned."""
    tile = nl.load(handed[place])
    nl.store(out[me(), 0 : tile.shape[0], 0 : tile.shape[1]], tile)


def meet(handed, cores=(0, 1)) -> None:
    nisa.core_barrier(data=handed, cores=cores)


def swap(to: Callable[[int], int], source: Callable[[int], int], pipe: int = 0) -> None:
    nisa.sendrecv(
        src=nl.zeros((1, 1), nl.float32),
        dst=nl.ndarray((1, 1), nl.float32, buffer=nl.sbuf),
        send_to_rank=to(me()),
        recv_from_rank=source(me()),
        pipe_id=pipe,
    )


def other(core: int) -> int:
    return 1 - core


def itself(core: int) -> int:
    return core


def register_of(n):
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(n))
    return register


def made(body: Callable[..., None], **options) -> Compiled:
    """`body(x, n, handed, out)`: `handed` isn't returned."""

    def kernel(x, n):
        handed, out = shared(), nl.zeros((2, 12, 10), nl.float32, buffer=nl.shared_hbm)
        body(x, n, handed, out)
        return out

    return compiled(kernel, (X.shape, X.dtype), ((1, 1), np.int32), lnc=2, **options)
