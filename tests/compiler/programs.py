"""Real programs for tests of the codec: compiled from kernels, as the launcher does it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch, dtypes
from nki_dist.compiler.compile import compile_kernel
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.compiler.encode import encode
from nki_dist.compiler.values import Structure
from nki_dist.isa.core import CoreSlot
from nki_dist.launcher.binding import collect_outputs
from nki_dist.ops.alignment import padded
from nki_dist.program import (
    Access,
    Dynamic,
    Instruction,
    Loop,
    Program,
    Storage,
    TensorSignature,
    VirtualRegister,
)
from nki_dist.runtime.group import placed_program, ready
from nki_dist.runtime.memory import Memory

F32 = dtypes.float32


def compiled(kernel: Callable[..., Any], *shapes: tuple, cores: int = 1) -> Compiled:
    """A kernel compiled for trn2; inputs are (shape, dtype) or shapes of float32."""
    signatures = []
    for n, entry in enumerate(shapes):
        shape, dtype = entry if isinstance(entry[0], tuple) else (entry, F32)
        signatures.append(TensorSignature(n, shape, dtype, f"in{n}"))

    def bind(trace: Any) -> tuple:
        return tuple(trace.input(s.index, s.shape, s.dtype, s.name) for s in signatures), {}

    grid = Grid((cores,) if cores > 1 else (), cores, (0,) if cores > 1 else ())
    name = kernel.__name__
    outputs = collect_outputs(kernel)
    return compile_kernel(kernel, name, arch.get("trn2"), grid, bind, signatures, outputs)


def link(program: Program, host_limit: int = 1 << 28) -> bool:
    """Link a program on memory of its own; False if it would need more than `host_limit` bytes."""
    total = sum(s.nbytes for s in program.storages)
    if total > host_limit:
        return False
    offsets, at = {}, 0
    for s in program.storages:
        if s.role in ("input", "shared"):
            offsets[s.role, s.index] = at
            at += padded(s.nbytes)
    placed = placed_program(program)
    memory = Memory(program, placed.places, np.zeros(at, np.uint8), offsets)
    ready(placed, CoreSlot(program.core, 0, program.core, program.cores), memory)
    return True


# ---- kernels --------------------------------------------------------------------------------


def two_cores(a, b):
    rows, columns = a.shape
    out = nl.ndarray((rows, columns), dtype=a.dtype, buffer=nl.shared_hbm, name="sum")
    me, n = nl.program_id(0), nl.num_programs(0)
    step = rows // n
    for r in range(me * step, (me + 1) * step, 128):
        h = min(128, (me + 1) * step - r)
        ta = nl.ndarray((h, columns), dtype=a.dtype, buffer=nl.sbuf)
        tb = nl.ndarray((h, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=ta, src=a[r : r + h, :])
        nisa.dma_copy(dst=tb, src=b[r : r + h, :])
        nisa.tensor_tensor(dst=ta, data1=ta, data2=tb, op=nl.add)
        nisa.dma_copy(dst=out[r : r + h, :], src=ta)
    if n == 2:
        t, u = nl.zeros((4, 4), nl.float32), nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf)
        nisa.sendrecv(src=t, dst=u, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        nisa.core_barrier(out, (0, 1))
    return out


def loops(a, n):
    """Registers, dynamic loops in each other, run-time offsets, no_reorder, depends_on."""
    out = nl.ndarray((4, 3, 8), dtype=a.dtype, buffer=nl.shared_hbm)
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=count, src=n)
    rows = nisa.register_alloc(count)
    total = nl.ndarray((3, 8), dtype=a.dtype, buffer=nl.sbuf)
    with nl.no_reorder():
        nisa.memset(dst=total, value=-0.0)
        nisa.memset(dst=total, value=0)
    for i in nl.dynamic_range(0, rows):
        tile = nl.ndarray((3, 8), dtype=a.dtype, buffer=nl.sbuf)
        load = nisa.dma_copy(dst=tile, src=a.select(0, i))
        nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add).depends_on(load)

        def body(j):
            nisa.dma_copy(dst=out[0, :, nl.ds(j, 2)], src=total[:, 0:2])

        nl.fori_loop(0, 3, body, step=2)
    return {"out": [out, None], "pair": (out[0:1], a)}


def gather(table, rows):
    index = nl.ndarray((5, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=index, src=rows)
    picked = nl.ndarray((5, 7), dtype=table.dtype, buffer=nl.sbuf)
    nisa.dma_copy(
        dst=picked,
        src=table.ap([[7, 5], [1, 7]], vector_offset=index),
        oob_mode=nisa.oob_mode.skip,
    )
    constant = nl.shared_constant(np.arange(35, dtype=np.float32).reshape(5, 7))
    other = nl.ndarray((5, 7), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=other, src=constant)
    nisa.tensor_tensor(dst=picked, data1=picked, data2=other, op=nl.multiply)
    out = nl.ndarray((5, 7), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=picked)
    nl.device_print("picked", picked)
    return out, (out,)


def matmul(x, w):
    """Matmuls that replace, add, and decide at run time."""
    k, m = x.shape
    n = w.shape[1]
    out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.shared_hbm)
    tx = nl.ndarray((k, m), dtype=x.dtype, buffer=nl.sbuf)
    tw = nl.ndarray((k, n), dtype=w.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tx, src=x)
    nisa.dma_copy(dst=tw, src=w)
    acc = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=tx, moving=tw)
    nisa.nc_matmul(dst=acc, stationary=tx, moving=tw)
    again = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
    for _ in nl.dynamic_range(3):
        nisa.nc_matmul(dst=again, stationary=tx, moving=tw)
    result = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=result, data1=acc, data2=tw[0:m, :], op=nl.subtract)
    nisa.tensor_tensor(dst=result, data1=again, data2=result, op=nl.add)
    nisa.dma_copy(dst=out, src=result)
    return [out]


def all_compiled() -> list[Compiled]:
    int32 = dtypes.int32
    return [
        compiled(two_cores, (384, 24), (384, 24), cores=2),
        compiled(loops, (4, 3, 8), ((1, 1), int32)),
        compiled(gather, (9, 7), ((5, 1), int32)),
        compiled(matmul, (16, 12), (16, 20)),
    ]


@cache
def real() -> tuple[Any, ...]:
    return tuple(all_compiled())


@cache
def encoded() -> tuple[bytes, ...]:
    return tuple(encode(p) for c in real() for p in c.programs)


# ---- equality of programs, spelled out field by field -----------------------------------------


def plain(value: Any) -> Any:
    """Anything in a program as nested tuples that compare exactly (types, signs, NaN)."""
    if isinstance(value, Access):
        dynamic = value.dynamic
        moved = dynamic and tuple(plain(getattr(dynamic, n)) for n in Dynamic.__slots__)
        static = (value.storage.number, value.offset, value.shape, value.strides)
        return ("access", *static, value.dtype.name, moved)
    if isinstance(value, VirtualRegister):
        return ("register", value.number)
    if isinstance(value, Storage):
        return tuple(plain(getattr(value, n)) for n in Storage.__slots__)
    if isinstance(value, Loop):
        return tuple(plain(getattr(value, n)) for n in Loop.__slots__)
    if isinstance(value, Instruction):
        # Kinds aren't written down: who reads a program finds them again.
        return tuple(plain(getattr(value, n)) for n in Instruction.__slots__ if n != "kind")
    if isinstance(value, Structure):
        return (value.class_name, plain(value.fields))
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(plain, value))
    if isinstance(value, dict):
        return ("dict", *((plain(k), plain(v)) for k, v in value.items()))
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, *sorted(map(repr, map(plain, value))))
    return (type(value).__name__, struct.pack("<d", value) if type(value) is float else value)


def plain_program(p: Program) -> Any:
    fields = ("kernel", "platform", "core", "cores", "registers", "locations", "storages")
    return [plain(getattr(p, n)) for n in (*fields, "body", "outputs", "facts")]
