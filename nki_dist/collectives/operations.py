"""What each collective does on one member: from its tensors to exchanges and back.

A plan is made once, when a program is linked, and run many times. `run` is a generator over a
Party of the own group (see party.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np

from nki_dist.codes.picture import outside
from nki_dist.collectives import in_place
from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.choose import choose
from nki_dist.collectives.members import GATHER, REDUCE
from nki_dist.collectives.operands import Flat, bits, blocks, larger_side, store_blocks, store_flat
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.collectives.reduction import Reduction, reduction
from nki_dist.errors import OutOfBoundsError
from nki_dist.isa.kit import Kit
from nki_dist.program import Instruction

Run = Callable[[Party], Waiting]
Steps = list[tuple[Array, Array]]


@dataclass(frozen=True)
class Member:
    """What a plan is made for.

    Attributes:
        group: ranks of the group, in order.
        rank: the own one.
    """

    i: Instruction
    kit: Kit
    group: tuple[int, ...]
    rank: int

    def algorithm(self) -> Algorithm:
        """The group's; asked for by operations that are carried out by one.

        Raises:
            LaunchError: the one that was asked for doesn't fit the group.
        """
        slot, arch = self.kit.slot, self.kit.arch
        layout = RankLayout.of(arch, slot.cores, slot.ranks_per_node)
        question = Question(self.i.opcode, larger_side(self.i), self.group, layout, arch)
        return choose(question, slot.algorithm)

    def payload(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """An uninitialised array that is cheap to send; where it comes from depends on the host."""
        array: Array = self.kit.wires.payload(shape, dtype)
        return array

    def bits(self, view: Array) -> Array:
        """A flat copy of a tensor's bits that can be sent."""
        return bits(view, self.kit.wires.payload)

    def moved(self) -> Steps:
        """Bits of each tensor that it gives, and of the one that takes what comes of it."""
        raw = self.kit.raw
        return [(raw(src), raw(dst)) for src, dst in zip(self.i["srcs"], self.i["dsts"])]

    def reduced(self) -> list[tuple[Array, Array, Reduction]]:
        """The same as numbers, and how they are reduced."""
        view, op = self.kit.view, self.i["op"]
        return [
            (view(src), view(dst), reduction(op, src.dtype, self.payload))
            for src, dst in zip(self.i["srcs"], self.i["dsts"])
        ]


def _all_reduce(m: Member) -> Run:
    algorithm, steps = m.algorithm(), m.reduced()
    if in_place.is_in_place(m.i, len(m.group), algorithm):
        return _reduced_in_place(m, steps, algorithm)

    def run(x: Party) -> Waiting:
        found = []
        for src, _, reduce in steps:
            as_it_is = (
                reduce.to_wide is None
                and src.flags.c_contiguous
                and algorithm.leaves(src.size, x.size)
            )
            flat = (src if as_it_is else reduce.widen(src)).reshape(-1)
            found.append((yield from algorithm.all_reduce(x, flat, reduce)))
        for (_, dst, _), parts in zip(steps, found):
            store_flat(dst, parts)

    return run


def _reduced_in_place(
    m: Member, steps: Sequence[tuple[Array, Array, Reduction]], algorithm: Algorithm
) -> Run:
    apart = in_place.are_apart([src for src, *_ in steps], [dst for _, dst, _ in steps], same=True)

    def run(x: Party) -> Waiting:
        sources = [src.reshape(-1) if apart else m.bits(src) for src, *_ in steps]
        for source, (_, dst, reduce) in zip(sources, steps):
            lies = dst.flags.c_contiguous
            result = dst.reshape(-1) if lies else m.payload((dst.size,), dst.dtype)
            yield from in_place.all_reduce(x, source, result, reduce, algorithm)
            if not lies:
                dst[...] = result.reshape(dst.shape)
        yield from in_place.finished(x)

    return run


def _reduce_scatter(m: Member) -> Run:
    dim, algorithm, steps = m.i["collective_dim"], m.algorithm(), m.reduced()

    def run(x: Party) -> Waiting:
        found = []
        for src, _, reduce in steps:
            chunks = blocks(reduce.widen(src), x.size, dim)
            mine = yield from algorithm.reduce_scatter(x, chunks, reduce)
            found.append(reduce.finish(mine))
        for (_, dst, _), mine in zip(steps, found):
            dst[...] = mine.reshape(dst.shape)

    return run


def _all_gather(m: Member) -> Run:
    algorithm, steps = m.algorithm(), m.moved()
    if in_place.is_in_place(m.i, len(m.group), algorithm):
        return _gathered_in_place(m, steps)
    return _gathered(m, steps, lambda x, src: algorithm.all_gather(x, m.bits(src)))


def _all_to_all(m: Member) -> Run:
    dim = m.i["collective_dim"]

    def exchange(x: Party, src: Array) -> Waiting:
        return x.all_to_all(blocks(m.bits(src).reshape(src.shape), x.size, dim))

    return _gathered(m, m.moved(), exchange)


def _gathered(m: Member, steps: Steps, exchange: Callable[[Party, Array], Waiting]) -> Run:
    """Each tensor's blocks, one from every member, once all of them are here."""
    dim = m.i["collective_dim"]

    def run(x: Party) -> Waiting:
        found = []
        for src, _ in steps:
            found.append((yield from exchange(x, src)))
        for (_, dst), arrays in zip(steps, found):
            store_blocks(dst, arrays, dim)

    return run


def _gathered_in_place(m: Member, steps: Steps) -> Run:
    dim = m.i["collective_dim"]
    apart = in_place.are_apart([src for src, _ in steps], [dst for _, dst in steps], same=False)

    def run(x: Party) -> Waiting:
        sources = [src.reshape(-1) if apart else m.bits(src) for src, _ in steps]
        for source, (_, dst) in zip(sources, steps):
            arrays = yield from x.all_to_all([source] * x.size)
            store_blocks(dst, arrays, dim)
        yield from in_place.finished(x)

    return run


# ---- counts known only at run time --------------------------------------------------------------


def _outside(m: Member, what: str, start: int, count: int, where: str, limit: int) -> NoReturn:
    raise OutOfBoundsError(
        f"{m.i.opcode} on rank {m.rank}: {what} is elements [{start}, {start + count}) of {where}, "
        f"which has {limit}",
        code="collective-range",
        numbers={"start": start, "stop": start + count, "allowed": limit},
        picture=outside(where, (limit,), 0, [(start, start + count)]),
    )


def _variable(m: Member, same_for_all: bool = False) -> Run:
    """all_to_all_v and all_gather_v: the latter sends the first column's chunk to everybody."""
    src, dst = Flat(m.i["srcs"][0], m.kit), Flat(m.i["dsts"][0], m.kit)
    meta = m.kit.view(m.i["metadata_tensor"])
    meta = meta.reshape(meta.shape[-2:])

    def outgoing(size: int) -> list[Array]:
        counts, starts = (meta[row].astype(np.int64).tolist() for row in (0, 1))
        chunks: list[Array] = []
        for n in range(1 if same_for_all else size):
            if starts[n] + counts[n] > src.size:
                to = "everybody" if same_for_all else f"rank {m.group[n]}"
                _outside(m, f"the chunk for {to}", starts[n], counts[n], src.label, src.size)
            chunks.append(src.read(starts[n], counts[n]))
        return chunks * size if same_for_all else chunks

    def placed(arrays: list[Array]) -> list[tuple[int, Array]]:
        slot = dst.size // len(arrays)
        starts = [n * slot for n in range(len(arrays))]
        if m.i["has_rdispls"]:
            starts, slot = meta[3].astype(np.int64).tolist(), dst.size
        for n, array in enumerate(arrays):
            what = f"the chunk from rank {m.group[n]}"
            if not m.i["has_rdispls"] and len(array) > slot:
                _outside(m, what, 0, len(array), f"its slot in {dst.label}", slot)
            if starts[n] + len(array) > dst.size:
                _outside(m, what, starts[n], len(array), dst.label, dst.size)
        return list(zip(starts, arrays))

    def run(x: Party) -> Waiting:
        arrays = yield from x.all_to_all(outgoing(x.size))
        dst.write(placed(arrays))
        if m.i["recv_counts_known"]:
            return None
        counts = np.array([len(a) for a in arrays], np.uint32)
        meta[2] = counts
        return counts

    return run


# ---- rings and pairs ----------------------------------------------------------------------------


def _permute(m: Member) -> Run:
    """The Party's members are the group made of all ranks in pairs; see execute."""
    pairs = m.i["source_target_pairs"]
    target = next((t for s, t in pairs if s == m.rank), None)
    source = next((s for s, t in pairs if t == m.rank), None)
    ((src, dst),) = m.moved()

    def run(x: Party) -> Waiting:
        mine = m.bits(src)
        if target is not None and target != m.rank:
            x.send(m.group.index(target), mine)
        if source is not None and source != m.rank:
            mine = yield from x.receive(m.group.index(source))
        if source is not None:
            dst[...] = mine.reshape(dst.shape)

    return run


def _ring_step(m: Member) -> Run:
    raw, channels = m.kit.raw, zip(m.i["srcs_by_channel"], m.i["dsts_by_channel"])
    steps = [(raw(src), raw(dst)) for (src,), (dst,) in channels]

    def run(x: Party) -> Waiting:
        found = [m.bits(src) for src, _ in steps]
        if x.size > 1:
            found = (yield _pass_on(x, found)).arrays
        for (_, dst), array in zip(steps, found):
            dst[...] = array.reshape(dst.shape)

    return run


def _ring_step_reduce(m: Member) -> Run:
    steps: list[tuple[Array, Array, Array, Reduction]] = []
    view = m.kit.view
    for (a,), (b,), (dst,) in zip(
        m.i["srcs0_by_channel"], m.i["srcs1_by_channel"], m.i["dsts_by_channel"]
    ):
        steps.append((view(a), view(b), view(dst), reduction(m.i["op"], dst.dtype, m.payload)))

    def run(x: Party) -> Waiting:
        outgoing = []
        for a, b, _, reduce in steps:
            total, other = reduce.widen(a).reshape(-1), reduce.widen(b).reshape(-1)
            reduce.combine(total, other, total)
            outgoing.append(reduce.finish(total))
        found = outgoing if x.size == 1 else (yield _pass_on(x, outgoing)).arrays
        for (_, _, dst, _), array in zip(steps, found):
            dst[...] = array.reshape(dst.shape)

    return run


def _pass_on(x: Party, arrays: list[Array]) -> Any:
    """Send to the next member of the group; returns what to yield for those of the one before."""
    x.send_all((x.me + 1) % x.size, arrays)
    return x.await_from(x.cores[(x.me - 1) % x.size])


# ---- all of them --------------------------------------------------------------------------------


class Kind(Enum):
    """Who sends to whom."""

    ALGORITHM = "a group, as the algorithm says that is chosen for it"
    DIRECT = "a group, everybody to everybody"
    RING = "each member of a group to the next"
    PAIRS = "source to target"


@dataclass(frozen=True)
class Operation:
    """What is known of a collective beyond its declaration.

    Attributes:
        plan: what it does on one member.
        touches: of HBM per byte that goes from one rank to another, in a ring or a pair.
    """

    plan: Callable[[Member], Run]
    kind: Kind
    touches: int = GATHER


OPERATIONS: Final[Mapping[str, Operation]] = MappingProxyType(
    {
        "all_reduce": Operation(_all_reduce, Kind.ALGORITHM),
        "reduce_scatter": Operation(_reduce_scatter, Kind.ALGORITHM),
        "all_gather": Operation(_all_gather, Kind.ALGORITHM),
        "all_gather_v": Operation(partial(_variable, same_for_all=True), Kind.DIRECT),
        "all_to_all": Operation(_all_to_all, Kind.DIRECT),
        "all_to_all_v": Operation(_variable, Kind.DIRECT),
        "collective_permute": Operation(_permute, Kind.PAIRS),
        "collective_permute_implicit": Operation(_ring_step, Kind.RING),
        "collective_permute_implicit_reduce": Operation(
            _ring_step_reduce, Kind.RING, touches=REDUCE + 1
        ),
    }
)
