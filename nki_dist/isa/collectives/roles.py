"""Roles and constraints that collectives share.

What the documentation calls a current limitation is no error here: the general case runs, and
`check="strict"` reports it. `nki_dist.collectives.check` compares groups with the world.
Source: `nki/api/nki/collectives/__init__.py`, neuron-runtime/about/collectives.rst.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from nki_dist.errors import NkiValidationError, invalid
from nki_dist.isa.alu import COLLECTIVE_REDUCE
from nki_dist.isa.checks import Check, check_priority, refuse_packed, rule
from nki_dist.isa.effects import EXCHANGED, OPTIMISTIC, Effects, Meets
from nki_dist.isa.operands import SBUF_OR_HBM, Custom, Number, Op, read, write
from nki_dist.isa.spec import Arch, Cost, Spec, current_tracer, instruction, may_reject, tracing
from nki_dist.program import Access, Instruction, MemoryRegion
from nki_dist.program.walk import operands, tensors
from nki_dist.ranges import shown

SOURCES: Final = read(SBUF_OR_HBM, many=True)
TARGETS: Final = write(SBUF_OR_HBM, many=True)
REDUCE: Final = Op(COLLECTIVE_REDUCE)
DIMENSION: Final = Number(integer=True)
PRIORITY: Final = Number(integer=True, optional=True).default(None)
MAX_CHANNELS: Final = 4


def _rank(name: str, value: Any) -> int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 0:
        return int(value)
    message = f"{name} names rank {value!r}; a rank is an int from 0"
    raise invalid(message, code="rank-form", got=value)


def rank_groups(name: str, value: Any) -> list[list[int]]:
    """Plain lists of ranks; groups are neither empty nor do they overlap.

    Raises:
        NkiValidationError: they are or do, or it isn't a list of lists of ranks.
    """
    groups = getattr(value, "groups", value)
    if isinstance(groups, np.ndarray):
        groups = groups.tolist()
    if not isinstance(groups, (list, tuple)) or not groups:
        message = (
            f"{name}={shown(value)}; allowed: a ReplicaGroup, a list of lists of ranks such as "
            "[[0, 1], [2, 3]]"
        )
        raise invalid(message, code="replica-group-form", got=value)
    found: list[list[int]] = []
    seen: dict[int, int] = {}
    for number, group in enumerate(groups):
        if not isinstance(group, (list, tuple, range)) or not len(group):
            message = f"{name}: group {number} is {group!r}; allowed: a list of at least one rank"
            raise invalid(message, code="replica-group-form")
        found.append([_rank(name, r) for r in group])
        for rank in found[-1]:
            if rank in seen:
                other = seen[rank]
                twice = other == number
                where = f"group {number} twice" if twice else f"groups {other} and {number}"
                message = (
                    f"{name}: rank {rank} is in {where} of {shown(found)}; groups must not overlap"
                )
                raise invalid(message, code="replica-group-overlap", rank=rank)
            seen[rank] = number
    return found


def rank_pairs(name: str, value: Any) -> list[list[int]]:
    """[source, target] pairs; no rank sends or receives twice."""
    if not isinstance(value, (list, tuple)) or not value:
        message = f"{name}={shown(value)}; allowed: a list of (source, target) pairs"
        raise invalid(message, code="collective-pairs", got=value)
    found = []
    for pair in value:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            message = f"{name} has {pair!r}; allowed: (source, target) pairs"
            raise invalid(message, code="collective-pairs")
        found.append([_rank(name, r) for r in pair])
    for side, label in ((0, "sends"), (1, "receives")):
        times = Counter([p[side] for p in found])
        twice = sorted((rank, n) for rank, n in times.items() if n > 1)
        if twice:
            rank, n = twice[0]
            message = f"{name}: rank {rank} {label} {n} times; at most once"
            raise invalid(message, code="collective-pairs", rank=rank, got=n, most=1)
    return found


def _message_key(i: Instruction) -> Any:
    return i.opcode, tuple((name, a.shape, a.dtype.name) for name, a in operands(i.args))


def _waits(i: Instruction, core: int) -> bool:
    """Tensors in shared HBM are the rank's: all its cores meet, if it takes part."""
    everyone = "replica_group" in i.args
    places = {a.region for name, a in operands(i.args) if name != "metadata_tensor"}
    return everyone and MemoryRegion.shared_hbm in places


# Collectives count as ordering the cores always, although those on SBUF tensors meet cores of other
# ranks only: the check of races errs in the kernel's favour.
MEETS: Final = Meets(
    orders=lambda i, core: True,
    waits=_waits,
    channel=_message_key,
    figures="chip_fabric_gbps collective_channel_gbps collective_start_ns efa_alpha_ns link_gbps "
    "link_hop_ns mesh_link_share ring_hop_ns",
    time=None,
)
# The data comes from other cores. Where ranks send different amounts, or some nothing, the rest of
# a destination stays.
IN_FULL: Final = Effects(OPTIMISTIC, partial=False, bits=EXCHANGED, state=None)
IN_PART: Final = Effects(OPTIMISTIC, partial=True, bits=EXCHANGED, state=None)


def _channels(name: str, value: Any) -> list[int]:
    if isinstance(value, (list, tuple)) and value:
        ids = [v for v in value if isinstance(v, (int, np.integer)) and v >= 0]
        if len(ids) == len(value) == len(set(ids)):
            return [int(v) for v in ids]
    message = f"{name}={shown(value)}; allowed: a list of different ints from 0"
    raise invalid(message, code="replica-group-form", got=value)


GROUPS: Final = Custom(rank_groups)
PAIRS: Final = Custom(rank_pairs)
CHANNELS: Final = Custom(_channels)


# ---- constraints --------------------------------------------------------------------------------


def limited(text: str, *, code: str, **numbers: Any) -> NkiValidationError:
    """What strict mode raises where AWS documents that something isn't supported for now."""
    return NkiValidationError(
        f"{text} (a current limitation of the documented API; nki_dist runs it unless "
        "check='strict')",
        code=code,
        numbers=numbers,
    )


def limitation(text: str, *, code: str, **numbers: Any) -> None:
    """What AWS documents as not supported for now: a warning, in strict mode an error."""
    if tracing() and current_tracer().strict:
        raise limited(text, code=code, **numbers)
    may_reject(f"{text}. AWS documents this as a limit of its release", code=code)


@rule
def lists(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Operands are lists of equal length."""
    lengths: dict[str, Any] = {}
    for name in names:
        if not isinstance(i[name], list) or not i[name]:
            raise invalid(f"{name} must be a list of at least one tensor", code="collective-lists")
        for n, a in enumerate(i[name]):
            if not isinstance(a, Access):
                raise invalid(f"{name}[{n}] is a list; allowed: a tensor", code="collective-lists")
        lengths[name] = len(i[name])
    if len(set(lengths.values())) > 1:
        message = f"{' and '.join(names)} must have as many tensors: got " + ", ".join(
            f"{name} {n}" for name, n in lengths.items()
        )
        raise invalid(message, code="collective-lists", **lengths)


@rule
def memories(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """All in HBM or all in SBUF, addresses known as a whole, equal dtypes pair by pair."""
    every = list(_named(i, names))
    onchip = [a for _, a in every if a.region.on_chip]
    if onchip and len(onchip) < len(every):
        other = next(a for _, a in every if not a.region.on_chip)
        message = (
            f"{onchip[0].storage.label} is in SBUF and {other.storage.label} in HBM; a "
            "collective's tensors must all be in HBM or all in SBUF"
        )
        raise invalid(message, code="collective-memory")
    for _, a in every:
        if a.dynamic is not None and a.dynamic.kind != "scalar":
            raise invalid(
                f"{a.storage.label} is addressed row by row; collectives take no vector offsets",
                code="vector-offset",
            )
    for pair in _facing(i, names):
        if len({a.dtype for a in pair}) > 1:
            message = "a collective doesn't convert: got dtypes " + ", ".join(
                f"{name} {a.dtype}" for name, a in zip(names, pair)
            )
            raise invalid(message, code="dtype-mismatch")


def _named(i: Instruction, names: tuple[str, ...]) -> Iterator[tuple[str, Access]]:
    return ((name, a) for name in names for a in tensors(i[name]))


def _facing(i: Instruction, names: tuple[str, ...]) -> Iterator[tuple[Access, ...]]:
    """Tensors at the same place of several lists."""
    return zip(*(list(tensors(i[name])) for name in names))


def coalesced(i: Instruction, arch: Arch) -> None:
    """Several tensors at once only in HBM."""
    if len(i["srcs"]) > 1 and i["srcs"][0].region.on_chip:
        message = f"{len(i['srcs'])} tensors in SBUF; several at once (coalesced) only in HBM"
        raise invalid(message, code="collective-lists", got=len(i["srcs"]), most=1)


@rule
def one_each(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Exactly one tensor per list."""
    for name in names:
        if len(i[name]) != 1:
            message = f"{name} has {len(i[name])} tensors; allowed: exactly one"
            raise invalid(message, code="collective-lists", got=len(i[name]), allowed=1)


@rule
def reducible(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Tensors of types that have one value per element."""
    for _, a in _named(i, names):
        refuse_packed(a.storage.label, a, "collectives don't reduce those")


def equal_group_size(i: Instruction) -> int:
    """Members of each group; shapes are the same on all ranks, so groups must be equally large."""
    sizes = [len(g) for g in i["replica_group"]]
    if len(set(sizes)) > 1:
        message = (
            f"groups of {sizes} ranks; the shapes of {i.opcode} depend on the group's size, so all "
            "groups must have the same"
        )
        raise invalid(message, code="replica-group-sizes", got=sizes)
    return sizes[0]


def dimension(i: Instruction, arch: Arch) -> None:
    """collective_dim is a dimension; which ones are supported now is a limitation."""
    dim, first = i["collective_dim"], i["srcs"][0]
    last = min(len(a.shape) for _, a in _named(i, ("srcs", "dsts"))) - 1
    if not 0 <= dim <= last:
        message = f"collective_dim={dim}; tensors have {last + 1} dimensions, allowed: 0 to {last}"
        raise invalid(message, code="axis", hint="", got=dim, least=0, most=last)
    most = 1 if i.opcode == "all_gather" and first.region.on_chip else 0
    if dim > most:
        limitation(
            f"collective_dim={dim} in {first.region.value}; allowed: at most {most}",
            code="axis",
            got=dim,
            most=most,
        )
    free_dimensions("srcs dsts")(i, arch)


@rule
def free_dimensions(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Documented for now: tensors in SBUF have a single free dimension."""
    for name, a in _named(i, names):
        if a.region.on_chip and len(a.shape) > 2:
            limitation(
                f"{name}: SBUF tensors of {len(a.shape)} dimensions; allowed: 2",
                code="shape-rank",
                got=len(a.shape),
                allowed=2,
            )


@rule
def gathered(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """The second is as many times the first along collective_dim as a group has ranks.

    Along dimension 0 of HBM tensors, blocks are contiguous, so only the number of elements counts.
    """
    small, large = names
    dim, size = i["collective_dim"], equal_group_size(i)
    for n, (part, whole) in enumerate(zip(i[small], i[large])):
        flat = dim == 0 and not part.region.on_chip
        if flat and whole.size == size * part.size:
            continue
        expected = tuple(s * size if d == dim else s for d, s in enumerate(part.shape))
        if whole.shape != expected:
            message = (
                f"{large}[{n}] has shape {whole.shape}; {small}[{n}] of shape {part.shape} and "
                f"{size} ranks need {expected} (collective_dim={dim})"
            )
            raise invalid(message, code="collective-shape", got=whole.shape, allowed=expected)


@rule
def channels(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """One list of exactly one tensor for each channel.

    How many channels there may be depends on where ranks sit; see `nki_dist.collectives.check`.
    """
    ids = i["channel_ids"]
    if ids != list(range(len(ids))):
        limitation(f"channel_ids={ids}; allowed: consecutive from 0", code="collective-channels")
    for name in names:
        value = i[name]
        good = isinstance(value, list) and all(
            isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], Access)
            for inner in value
        )
        if not good:
            message = f"{name} must be a list with, for each channel, a list of exactly one tensor"
            raise invalid(message, code="collective-lists")
        if len(value) != len(ids):
            message = f"{name} has {len(value)} channels, channel_ids={ids} names {len(ids)}"
            raise invalid(message, code="collective-channels", got=len(value), allowed=len(ids))


@rule
def equal_sizes(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Tensors that face each other have as many elements, and in SBUF as many partitions."""
    for first, *others in _facing(i, names):
        for name, a in zip(names[1:], others):
            if a.size != first.size or (a.region.on_chip and a.shape[0] != first.shape[0]):
                message = (
                    f"{name} has shape {a.shape}, {names[0]} {first.shape}; they must hold as many "
                    "elements (in SBUF, partition by partition)"
                )
                raise invalid(message, code="collective-shape", got=a.shape, allowed=first.shape)


@rule
def in_hbm(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Documented as HBM only, for now."""
    for name, a in _named(i, names):
        if a.region.on_chip:
            message = f"{name}: {a.storage.label}; {i.opcode} takes tensors in HBM"
            limitation(message, code="collective-memory")


COALESCED: Final = (lists("srcs dsts"), memories("srcs dsts"), coalesced)
SINGLE: Final = (lists("srcs dsts"), one_each("srcs dsts"), memories("srcs dsts"))


def collective(
    *checks: Check, effects: Effects = IN_FULL
) -> Callable[[Callable[..., dict[str, Any]]], Spec]:
    """Declare a collective, with what is the same for all, of its checks that of its priority."""

    def declared(function: Callable[..., dict[str, Any]]) -> Spec:
        every = (*checks, check_priority)
        declare = instruction(
            engines="cc", effects=effects, checks=every, cost=_cost, meets=MEETS, namespace="ncc"
        )
        spec = declare(function)
        spec.exchange(lambda i, kit: kit.wires.collective(i, kit))
        return spec

    return declared


def _cost(i: Instruction, arch: Arch) -> Cost:
    most = max(sum(a.nbytes for a in tensors(v)) for v in i.args.values())
    return Cost(dma_bytes=most, known=False)
