"""Cuts tensors on chip into the bytes that a kernel writes apart, each free when its use is over.

A tile that is loaded slice by slice is one tensor to the kernel. A compiler follows bytes: a slice
is free once its last reader is over, and is spilled and reloaded without the others. A tensor is
cut where a write begins or ends; one with run-time addresses, whose contents are another's, or with
more than `MOST` pieces isn't cut, nor is anything in PSUM, which has banks. In kernels of Beta 1,
whose compiler has tiles of its own, nothing is.

Follows: a matmul in 78 block sizes (docs/accuracy.md, block sizes): with spills of whole tensors
the model moves up to 13 times what the measured time has room for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, TypeAlias

from nki_dist.program import Access, MemoryRegion, Storage
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import OrderGraph

MOST: Final = 64

Span: TypeAlias = tuple[int, int]  # of a partition's bytes, half open


@dataclass
class Pieces:
    """The pieces of some storages, by number, and who touches them.

    Attributes:
        storages: whose piece it is.
        spans: which of its bytes.
        touched, written: by position, the pieces that an instruction touches, and of these the
            ones it writes; none if it is dropped.
    """

    storages: list[Storage] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    touched: list[tuple[int, ...]] = field(default_factory=list)
    written: list[tuple[int, ...]] = field(default_factory=list)

    def part(self, number: int, size: int) -> int:
        """What a piece has of something that its tensor has `size` of, rounded up."""
        low, high = self.spans[number]
        return -(-size * (high - low) // max(self.storages[number].partition_bytes, 1))


def pieces(graph: OrderGraph, plan: Plan, of: Collection[int]) -> Pieces:
    """The pieces of the storages whose numbers are `of`."""
    found = Pieces()
    cuts = _cuts(graph, plan, of) if plan.close else {}
    numbers: dict[int, list[int]] = {}  # storage -> its pieces
    for n in sorted(of):
        storage = graph.program.storages[n]
        spans = cuts.get(n) or [(0, max(storage.partition_bytes, 1))]
        numbers[n] = list(range(len(found.spans), len(found.spans) + len(spans)))
        found.storages += [storage] * len(spans)
        found.spans += spans
    cache = {n: _touch(pair, plan, found.spans, numbers) for n, pair in graph.tensors.items()}
    for at, i in enumerate(graph.executed):
        touched, written = cache[i.ordinal] if at not in plan.dropped else ((), ())
        found.touched.append(touched)
        found.written.append(written)
    return found


def _touch(
    pair: tuple[list[Access], list[Access]],
    plan: Plan,
    spans: Sequence[Span],
    numbers: Mapping[int, Sequence[int]],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The pieces that an instruction touches, and those that it writes."""
    touched: set[int] = set()
    written: set[int] = set()
    for k, accesses in enumerate(pair):
        for a in accesses:
            number = a.storage.number
            n = plan.same.get(number, number)
            here = numbers.get(n, ())
            if len(here) > 1 and n == number and a.dynamic is None:
                low, high = _span(a)
                here = [p for p in here if spans[p][0] < high and low < spans[p][1]]
            touched.update(here)
            if k and n == number:
                written.update(here)
    return tuple(sorted(touched)), tuple(sorted(written))


def _cuts(graph: OrderGraph, plan: Plan, of: Collection[int]) -> dict[int, list[Span]]:
    """By storage, the pieces of those that have several."""
    whole = {*plan.same, *plan.same.values()}
    edges: dict[int, set[int]] = {}
    for _, writes in graph.tensors.values():
        for a in writes:
            n = a.storage.number
            if n not in of or a.storage.region is not MemoryRegion.sbuf:
                continue
            if a.dynamic is not None or min(a.strides, default=0) < 0:
                whole.add(n)
            else:
                edges.setdefault(n, set()).update(_span(a))
    found = {}
    for n, at in edges.items():
        at |= {0, graph.program.storages[n].partition_bytes}
        if n not in whole and 2 < len(at) <= MOST + 1:
            found[n] = list(pairwise(sorted(at)))
    return found


def _span(a: Access) -> Span:
    """The bytes of a partition that an access reaches from the first to the last."""
    row, size = a.partition_stride, a.dtype.itemsize
    reach = sum((n - 1) * step for n, step in zip(a.shape[1:], a.strides[1:], strict=True))
    low = (a.offset % row if row else 0) * size
    return low, low + (reach + 1) * size
