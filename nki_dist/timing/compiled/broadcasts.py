"""Turns copies of a row to all partitions into products with ones, which leave it in PSUM.

Engines can't read one partition for all. AWS's compiler broadcasts with Tensor, as its guides say.
Whoever reads the result together with a tile of SBUF reads both at once (`pair_cycles`). A kernel
of Beta 1 has a transfer there; it becomes products where PSUM has room for what is in use and for
what comes next, wider ones stay transfers. One row of the array works, which doesn't count as being
busy for Tensor's clock.

Doesn't model: the room in PSUM.
Follows: A2 "Partition broadcast"; the tutorial of the fused Mamba kernel.
"""

from __future__ import annotations

from typing import Final

from nki_dist.arch import Arch
from nki_dist.isa.spec import Cost
from nki_dist.isa.timing_rules import product_cycles
from nki_dist.program import Access, MemoryRegion
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import OrderGraph, times_written

_AT_ONCE: Final = 4  # two rows in use, while the next two are made


def broadcast_by_products(graph: OrderGraph, plan: Plan, arch: Arch) -> None:
    """Turn transfers from one partition of SBUF to all of a tile of their own into products."""
    written = times_written(graph)
    for at, i in enumerate(graph.executed):
        if i.engine != "dma" or at in plan.dropped or not _spreads(*graph.tensors[i.ordinal]):
            continue
        (tile,) = graph.tensors[i.ordinal][1]
        fits = tile.storage.partition_bytes * _AT_ONCE <= arch.psum_banks * arch.psum_bank_bytes
        if not fits or written[tile.storage.number] != 1:
            continue
        if i.ordinal not in plan.recast:
            plan.recast[i.ordinal] = product = i.with_args(i.args)
            product.engine = "tensor"
            passes = arch.matmul_fp32_passes if tile.dtype.name == "float32" else 1
            pieces = -(-tile.free_size // arch.gemm_moving_fmax)
            each = product_cycles(tile.free_size / pieces, arch.partitions, arch, passes)
            plan.products[i.ordinal] = Cost(cycles=pieces * each)
            plan.in_psum.add(tile.storage.number)
        graph.executed[at] = plan.recast[i.ordinal]
        plan.note(i.location, "broadcast by a product", tile.nbytes)


def _spreads(reads: list[Access], writes: list[Access]) -> bool:
    """Whether a transfer gives all partitions what one of SBUF has."""
    if len(reads) != 1 or len(writes) != 1:
        return False
    (row,), (tile,) = reads, writes
    spread = row.region is MemoryRegion.sbuf and row.shape[0] > 1 and not row.strides[0]
    return spread and tile.region is MemoryRegion.sbuf
