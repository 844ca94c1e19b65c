"""Checks the groups of collectives against the world before anything runs.

A program doesn't know how many ranks will run it, nor where they sit, so the launcher asks here.
Where the documentation says that something isn't supported for now, `strict` reports it.

Source: `nki/api/nki/collectives/__init__.py`, neuron-runtime/about/collectives.rst and
neuron-runtime/explore/internode-collective-comm.rst (groups of several nodes).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from nki_dist.errors import NkiValidationError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.collectives.roles import MAX_CHANNELS, limited
from nki_dist.program import Instruction, Program, instructions
from nki_dist.ranges import named, shown
from nki_dist.topology.topology import Topology

FEW_CHANNELS: Final = 2  # of groups that don't hold all devices of a node


def check_world(programs: Sequence[Program], world: Topology, strict: bool = False) -> None:
    """Every rank of a world is in one group of each collective, and groups name no others.

    Args:
        strict: also report what the documentation calls a current limitation.

    Raises:
        NkiValidationError: with the kernel line of the first collective where that isn't so.
    """
    for program in programs:
        for i in instructions(program.body):
            try:
                check_groups(i, world, strict)
            except NkiValidationError as error:
                raise error.at(
                    location=program.where(i.location),
                    core=program.core,
                    instruction=INSTRUCTIONS[i.opcode].title,
                ) from None


def check_groups(i: Instruction, world: Topology, strict: bool = False) -> None:
    """The same for one instruction, which may be none of the collectives.

    Raises:
        NkiValidationError: without a place.
    """
    for error in _wrong(i, world, strict):
        raise error


def _wrong(i: Instruction, world: Topology, strict: bool) -> Iterator[NkiValidationError]:
    if "replica_group" in i.args:
        yield from _groups(i, world.ranks)
        yield from _channels(i, world)
        if strict:
            yield from _asymmetric(i, world)
    elif "source_target_pairs" in i.args:
        yield from _pairs(i, world.ranks)
        if strict:
            yield from _far_pairs(i, world)
    if strict and i.opcode == "all_gather_v":
        yield from _limits_of_all_gather_v(i, world)
    if strict and i.opcode == "all_to_all_v":
        switched = world.arch.fabric == "switch"
        yield from (_whole_devices if switched else _one_per_node)(i, world)


def _groups(i: Instruction, ranks: int) -> Iterator[NkiValidationError]:
    groups = i["replica_group"]
    members = {rank for group in groups for rank in group}
    beyond = sorted(members - set(range(ranks)))
    if beyond:
        yield _beyond("replica_group", groups, beyond[0], ranks)
    missing = sorted(set(range(ranks)) - members)
    if missing:
        yield NkiValidationError(
            f"{named(missing)} {'is' if len(missing) == 1 else 'are'} in no group of "
            f"replica_group={shown(groups)}, and the world has {ranks} ranks, which all run this",
            code="replica-group-incomplete",
            numbers={"rank": missing[0], "ranks": ranks},
        )


def _pairs(i: Instruction, ranks: int) -> Iterator[NkiValidationError]:
    pairs = i["source_target_pairs"]
    beyond = sorted({rank for pair in pairs for rank in pair if rank >= ranks})
    if beyond:
        yield _beyond("source_target_pairs", pairs, beyond[0], ranks)


def _beyond(name: str, value: object, rank: int, ranks: int) -> NkiValidationError:
    have = f"ranks 0 to {ranks - 1}" if ranks > 1 else "one rank, 0"
    return NkiValidationError(
        f"{name}={shown(value)} names rank {rank}; the world has {have}",
        code="rank-range",
        numbers={"got": rank, "most": ranks - 1},
    )


def _channels(i: Instruction, world: Topology) -> Iterator[NkiValidationError]:
    """Rings have as many channels as there are separate wires for them."""
    if "channel_ids" in i.args:
        count = len(i["channel_ids"])
    elif "channel_id" in i.args:
        count = i["channel_id"] + 1
    else:
        return
    for group in i["replica_group"]:
        most = MAX_CHANNELS if _holds_a_node(group, world) else FEW_CHANNELS
        if count > most:
            yield NkiValidationError(
                f"{count} channels for {_few(group)}; allowed: {MAX_CHANNELS} for groups with "
                f"ranks on all {world.arch.chips_per_instance} devices of a node, {FEW_CHANNELS} "
                "for others",
                code="collective-channels",
                numbers={"got": count},
            )


def _holds_a_node(group: Sequence[int], world: Topology) -> bool:
    chips = {rank // world.ranks_per_chip for rank in group}
    found = Counter(chip // world.arch.chips_per_instance for chip in chips)
    return max(found.values()) == world.arch.chips_per_instance


def _few(group: Sequence[int]) -> str:
    """A group in a message, cut short."""
    return f"the group {shown(group)} of {len(group)} rank" + ("s" if len(group) > 1 else "")


# ---- current limitations ------------------------------------------------------------------------


def _asymmetric(i: Instruction, world: Topology) -> Iterator[NkiValidationError]:
    """Groups that span nodes have ranks with the same places on each."""
    size = world.ranks_per_instance * world.arch.instances_per_ultraserver
    for group in i["replica_group"]:
        places: dict[int, set[int]] = {}
        for rank in group:
            places.setdefault(rank // size, set()).add(rank % size)
        if len({frozenset(p) for p in places.values()}) > 1:
            yield limited(
                f"{_few(group)} has other places on one node than on another; allowed: the same on "
                "each",
                code="collective-group-places",
            )


def _far_pairs(i: Instruction, world: Topology) -> Iterator[NkiValidationError]:
    """Ranks that follow each other in a ring are on one chip or on directly connected ones.

    With switches every chip reaches every other one, and nothing is said about EFA.
    """
    for source, target in i["source_target_pairs"]:
        path = world.path(source, target)
        if world.arch.fabric != "switch" and len(path) > 1:
            yield limited(
                f"source_target_pairs has {source}, {target}, which are {len(path)} links apart; "
                "allowed: ranks of one chip or of neighbours",
                code="collective-permute-distance",
                got=len(path),
                most=1,
            )


def _limits_of_all_gather_v(i: Instruction, world: Topology) -> Iterator[NkiValidationError]:
    yield from _lnc_2("all_gather_v", world)
    for group in i["replica_group"]:
        if len({rank // world.ranks_per_chip for rank in group}) > 1:
            yield limited(
                f"all_gather_v with {_few(group)} on several chips; allowed: on one",
                code="collective-group-places",
            )


def _lnc_2(opcode: str, world: Topology, where: str = "") -> Iterator[NkiValidationError]:
    if world.lnc != 2:
        yield limited(
            f"{opcode} with LNC={world.lnc}{where}; allowed: 2",
            code="collective-lnc",
            got=world.lnc,
            allowed=2,
        )


def _one_per_node(i: Instruction, world: Topology) -> Iterator[NkiValidationError]:
    """all_to_all_v without switches: ranks with the same place on different instances."""
    size = world.ranks_per_instance
    for group in i["replica_group"]:
        places = {rank % size for rank in group}
        instances = {rank // size for rank in group}
        if len(places) > 1 or len(instances) < len(group):
            yield limited(
                f"all_to_all_v with {_few(group)} on {world.arch.instance}; allowed: ranks with "
                f"the same place on different instances, such as 0 and {size}",
                code="collective-group-places",
            )


def _whole_devices(i: Instruction, world: Topology) -> Iterator[NkiValidationError]:
    """all_to_all_v through switches: sequential ranks, all those of several devices."""
    yield from _lnc_2("all_to_all_v", world, f" on {world.arch.instance}")
    for group in i["replica_group"]:
        ranks, per_chip = set(group), world.ranks_per_chip
        chips = {rank // per_chip for rank in group}
        whole = all(n * per_chip + k in ranks for n in chips for k in range(per_chip))
        sequential = max(ranks) - min(ranks) + 1 == len(ranks)
        if len(chips) < 2 or not whole or not sequential:
            yield limited(
                f"all_to_all_v with {_few(group)} on {world.arch.instance}; allowed: sequential "
                f"ranks that are all {per_chip} of each of several devices",
                code="collective-group-places",
            )
