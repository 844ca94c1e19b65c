"""Kernels that the tests of hosts run; each does one thing between two cores."""

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def add_halves(a, b):
    """Each core adds its share of the rows."""
    rows, cols = a.shape
    out = nl.ndarray((rows, cols), dtype=a.dtype, buffer=nl.shared_hbm)
    share = rows // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * share, share)
    x = nl.ndarray((share, cols), dtype=a.dtype, buffer=nl.sbuf)
    y = nl.ndarray((share, cols), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a[mine, :])
    nisa.dma_copy(dst=y, src=b[mine, :])
    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
    nisa.dma_copy(dst=out[mine, :], src=x)
    return out


@nki.jit
def who_sees_what(seed):
    """Each core stores its number + 1 in shared and private HBM, then reads all of both."""
    me = nl.program_id(0)
    shared = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    private = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.private_hbm)
    seen_shared = nl.ndarray((2, 2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    seen_private = nl.ndarray((2, 2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
    zero = nl.zeros((2, 4), dtype=nl.float32, buffer=nl.sbuf)
    mark = nl.full((1, 4), me + 1, dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=private, src=zero)
    nisa.dma_copy(dst=private[me : me + 1, :], src=mark)
    nisa.dma_copy(dst=shared[me : me + 1, :], src=mark)
    nisa.core_barrier(data=shared, cores=(0, 1))
    nisa.dma_copy(dst=seen_shared[me], src=shared)
    nisa.dma_copy(dst=seen_private[me], src=private)
    return seen_shared, seen_private


@nki.jit
def swap(x):
    """The cores exchange tiles, twice on one pipe and once on another, with both DMA engines."""
    me = nl.program_id(0)
    out = nl.ndarray((2, 3, *x.shape[1:]), dtype=x.dtype, buffer=nl.shared_hbm)
    mine = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=mine, src=x[me])
    twice = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=twice, data1=mine, data2=mine, op=nl.add)
    got = [nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf) for _ in range(3)]
    other = 1 - me
    nisa.sendrecv(mine, got[0], other, other, 0)
    nisa.sendrecv(twice, got[1], other, other, 0)
    nisa.sendrecv(mine, got[2], other, other, 1, dma_engine=nisa.dma_engine.gpsimd_dma)
    for n in range(len(got)):
        tile = got[n]
        nisa.dma_copy(dst=out[me, n], src=tile)
    return out


@nki.jit
def add_in_place(x, y):
    """x += y, without returning anything."""
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    u = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    nisa.dma_copy(dst=u, src=y)
    nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.add)
    nisa.dma_copy(dst=x, src=t)


@nki.jit
def count_forever(limit):
    """Counts in a register-controlled loop until the counter reaches zero: long for big limits."""
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    left = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=limit)
    nisa.memset(dst=one, value=1)
    counter = nisa.register_alloc()
    nisa.register_load(counter, left)

    def body(r):
        nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
        nisa.register_load(r, left)
        return r

    nl.while_loop(counter, body)
    nisa.core_barrier(data=out, cores=(0, 1))
    nisa.dma_copy(dst=out, src=left)
    return out


@nki.jit
def core_zero_waits_for_tile(x):
    """Core 1 never sends what core 0 waits for."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    if nl.program_id(0) == 0:
        nisa.sendrecv(t, t, 1, 1, 0)
    nisa.dma_copy(dst=out, src=t)
    return out


@nki.jit
def index_too_large(table, index):
    """A run-time row number outside the table."""
    out = nl.ndarray((1, table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    i = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=i, src=index)
    row = nisa.register_alloc(i)
    nisa.dma_copy(dst=out, src=table[nl.ds(row, 1), :])
    return out


@nki.jit
def rows_beyond(x, start, rows):
    """Rows from a run-time place on, by address, by window and by vector; some beyond x."""
    index, rows = nl.load(start), nl.load(rows)
    sources = (
        x.ap([[7, 6], [1, 5]], 1, scalar_offset=index),
        x[nl.ds(nisa.register_alloc(index), 6), 1:6],
        x.ap([[7, 3], [7, 2], [1, 5]], 1, vector_offset=rows),
    )
    outs = []
    for source in sources:
        out = nl.ndarray(source.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        blank = nl.ndarray(source.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(dst=blank, value=-1.0)
        nisa.dma_copy(dst=blank, src=source, oob_mode=nisa.oob_mode.skip)
        nl.store(out, blank)
        outs.append(out)
    return tuple(outs)


@nki.jit
def show(x):
    """Prints x on core 0, twice x on core 1."""
    t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=t, src=x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=t)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=float(nl.program_id(0) + 1))
    nl.device_print("tile", t)
    return out
