"""How a core takes part in a collective.

Tensors in shared HBM belong to the rank: its cores meet (each tells core 0 that it has come), core
0 carries the operation out with core 0 of the other ranks, then releases the others. So what both
cores wrote before is there, and both see the result. Tensors in SBUF and private HBM belong to the
core: core c works with core c of the other ranks.

Every message carries a description of the operation; the first difference between two cores that
exchange anything is a CollectiveMismatchError. Operations of one group are numbered, so that a rank
that left one out is found out even if the next one looks alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from nki_dist.collectives.operands import belongs_to_rank, pattern
from nki_dist.collectives.operations import OPERATIONS, Member, Run
from nki_dist.collectives.party import CHANNEL, Party, Waiting
from nki_dist.errors import NkiValidationError
from nki_dist.isa.kit import Kit
from nki_dist.program import Instruction
from nki_dist.program.walk import operands, tensors
from nki_dist.ranges import shown

_PART: Final = "part"  # the key under which a core keeps its part
# Attributes that don't have to be equal on all ranks, or say no more than the tensors do.
_UNCOMPARED = frozenset({"priority"})


def link(
    i: Instruction,
    kit: Kit,
    find: Callable[[Instruction, int], tuple[int, ...]] | None = None,
    alone: Run | None = None,
) -> Callable[[], Any]:
    """The generator function that executes `i` on the core of `kit`.

    Args:
        find: does what `group_of` does.
        alone: instead of the exchange with other ranks; see collectives.alone.
    """
    slot, wires = kit.slot, kit.wires
    found = _rendezvous_of(i, kit, find)
    if found is None:
        return _nothing
    cores, described, within_rank = found.cores, found.described, found.within_rank
    run, me, others, begun = _part_of(i, kit, found, alone)

    def start() -> Waiting:
        number = begun[0]
        begun[0] = number + 1
        if run is None:
            wires.send(slot.peer(0), CHANNEL, None, within_rank, i, number)
            counts = yield wires.receive(slot.peer(0), CHANNEL, within_rank, i, number)
            _note_counts(i, kit, counts)
            return
        for core in others:
            yield wires.receive(core, CHANNEL, within_rank, i, number)
        x = Party(
            me,
            cores,
            lambda core, payload: wires.send(core, CHANNEL, payload, described, i, number),
            lambda core: wires.receive(core, CHANNEL, described, i, number),
        )
        counts = yield from run(x)
        for core in others:
            wires.send(core, CHANNEL, counts, within_rank, i, number)

    return start


class _Part(NamedTuple):
    """A core's part in a rendezvous, the same in all with equal arguments.

    Attributes:
        run: what it does, of which only one is under way at a time; None if core 0 does it.
        me: its rank's position in the group.
        others: cores of its rank that it tells when all is done.
        begun: how many collectives of the group have begun in the launch.
    """

    run: Run | None
    me: int
    others: list[int]
    begun: list[int]


def _part_of(i: Instruction, kit: Kit, found: _Rendezvous, alone: Run | None) -> _Part:
    cache, slot = kit.core_cache, kit.slot
    if cache is not None and _PART in cache:
        part: _Part = cache[_PART]
        return part
    group, shared, lead = found.group, found.shared, found.lead
    run: Run | None = None
    if not shared or slot.lnc_core == 0:
        run = alone or OPERATIONS[i.opcode].plan(Member(i, kit, group, slot.rank))
    others = [slot.peer(c) for c in range(1, slot.cores)] if shared else []
    # Core 0 takes part in the rank's and in its own; the other cores' own aren't counted with it.
    begun = kit.state.collectives.setdefault((shared, lead, group), [0])
    part = _Part(run, group.index(slot.rank), others, begun)
    if cache is not None:
        cache[_PART] = part
    return part


class _Rendezvous(NamedTuple):
    """What is the same for all members of a group, as far as they have the same place in it.

    Attributes:
        group: its ranks.
        shared: whether the tensors belong to ranks, not to cores.
        lead: the core of each rank that takes part.
        cores: these, numbered over the world.
        described: what must be equal on all ranks that take part.
        within_rank: what must be equal on the cores of a rank.
    """

    group: tuple[int, ...]
    shared: bool
    lead: int
    cores: tuple[int, ...]
    described: dict[str, Any]
    within_rank: dict[str, Any]


def _rendezvous_of(
    i: Instruction, kit: Kit, find: Callable[[Instruction, int], tuple[int, ...]] | None
) -> _Rendezvous | None:
    """The rendezvous of a core in a collective; None if its rank isn't concerned.

    A group has one for all of its members that are linked here: they are as many as ranks, and so
    is what it holds.
    """
    slot, cache = kit.slot, kit.cache
    if cache is not None and slot.rank in cache:
        met: _Rendezvous = cache[slot.rank]
        return met
    group = (find or group_of)(i, slot.rank)
    if not group:
        return None
    shared = belongs_to_rank(i, slot.cores)
    lead = 0 if shared else slot.lnc_core
    cores = tuple(rank * slot.cores + lead for rank in group)
    described = describe(i, group)
    within_rank = {**described, "tensors": [pattern(a) for _, a in operands(i.args)]}
    found = _Rendezvous(group, shared, lead, cores, described, within_rank)
    if cache is not None:
        cache.update(dict.fromkeys(group, found))
    return found


def _nothing() -> None:
    """A rank in no pair of a permutation."""


def group_of(i: Instruction, rank: int) -> tuple[int, ...]:
    """The ranks that meet, or () if this one isn't concerned."""
    if "source_target_pairs" in i.args:
        ranks = sorted({r for pair in i["source_target_pairs"] for r in pair})
        return tuple(ranks) if rank in ranks else ()
    for group in i["replica_group"]:
        if rank in group:
            return tuple(group)
    raise NkiValidationError(
        f"rank {rank} is in no group of replica_group={shown(i['replica_group'])}, but calls "
        f"{i.opcode}",
        code="replica-group-incomplete",
        numbers={"rank": rank},
    )


def describe(i: Instruction, group: tuple[int, ...]) -> dict[str, Any]:
    """What must be equal on all ranks that take part."""
    found: dict[str, Any] = {"op": i.opcode}
    for name, value in i.args.items():
        accesses = list(tensors(value))
        if accesses:
            shapes = [a.shape for a in accesses]
            found[name] = shapes if len(shapes) > 1 else shapes[0]
            found["dtype"] = accesses[0].dtype.name if name != "metadata_tensor" else "uint32"
        elif name == "replica_group":
            found["group"] = list(group)
        elif name == "op":
            found["reduce"] = value
        elif name not in _UNCOMPARED:
            found[name] = value
    return found


def _note_counts(i: Instruction, kit: Kit, counts: Any) -> None:
    """Counts that core 0 received also go to this core's own metadata in SBUF."""
    if counts is None:
        return
    meta = i["metadata_tensor"]
    if meta.region.value != "shared_hbm":
        view = kit.view(meta)
        view.reshape(view.shape[-2:])[2] = counts
