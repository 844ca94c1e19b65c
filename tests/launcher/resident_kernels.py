"""Arrays and kernels for tensors that stay in HBM; with two cores, each does half of the rows."""

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

A = np.arange(24, dtype=np.float32).reshape(4, 6)
B = A[::-1] * 10 + 1
BOTH = nki.per_rank([A, B])
same = np.testing.assert_array_equal


def at(row):
    return np.array([[row]], np.int32)


ROWS = list(map(at, range(4)))


def value(tensor):
    """Of the only rank."""
    (only,) = tensor.numpy()
    return only


def known(world, *tensors):
    """What these kernels make of tensors is compiled, sent and linked: they can go in a row."""
    world.run(added, *tensors)
    world.run(picked, tensors[0], world.put(ROWS[0]))
    world.wait()


def _mine(x):
    share = x.shape[0] // nl.num_programs(0)
    return nl.ds(nl.program_id(0) * share, share)


@nki.jit
def added(x, y):
    """x + y"""
    mine, out = _mine(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t, u = nl.load(x[mine]), nl.load(y[mine])
    nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
    nl.store(out[mine], t)
    return out


@nki.jit
def add_into(x, y):
    """y += x; returns nothing."""
    mine = _mine(x)
    t, u = nl.load(x[mine]), nl.load(y[mine])
    nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
    nl.store(y[mine], t)


@nki.jit
def forms(x, y):
    """What isn't a new tensor of its own: parts, arguments and their parts, constants, twice."""
    mine, out = _mine(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x[mine])
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=3.0)
    nl.store(out[mine], t)
    nl.store(y[mine], t)
    return {
        "out": out,
        "part": out[0:2, 1:4],
        "argument": x,
        "part of an argument": x[1:3],
        "written": y,
        "part of what is written": y[2:4, 0:5],
        "again": [out, x],
    }


@nki.jit
def picked(x, at):
    """The row of x at a place known at run time, which it prints."""
    i = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=i, src=at)
    place = nisa.register_alloc()
    nisa.register_load(place, i)
    row = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    pattern = [[x.shape[1], 1], [1, x.shape[1]]]
    nisa.dma_copy(dst=row, src=x.ap(pattern, scalar_offset=place, indirect_dim=0))
    out = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, row)
    if nl.program_id(0) == 0:
        nl.device_print("row", row[0:1, 0:1])
    return out


@nki.jit
def put_row(x, row, at):
    """Write a row of x, in place, at a place known at run time; all else of it stays."""
    i = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=i, src=at)
    place = nisa.register_alloc()
    nisa.register_load(place, i)
    pattern = [[x.shape[1], 1], [1, x.shape[1]]]
    nisa.dma_copy(dst=x.ap(pattern, scalar_offset=place, indirect_dim=0), src=nl.load(row))


@nki.jit
def racy(x):
    """Both cores store something else to the same place."""
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=float(nl.program_id(0)))
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, t)
    return out


@nki.jit
def apart(x):
    """Core 0 waits for core 1, which doesn't come."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    if nl.program_id(0) == 0:
        nisa.core_barrier(data=out, cores=(0, 1))
    return out


@nki.jit
def slow(x):
    """Takes a host some tenths of a second with (128, 2048)."""
    tile = nl.load(x)
    for _ in range(400):
        nisa.activation(dst=tile, op=nl.tanh, data=tile)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out
