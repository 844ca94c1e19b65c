"""Works out costs, transfers and locks of instructions, once for all that have the same pattern.

Most instructions of a kernel repeat a few patterns at other addresses, and an instruction's file
works out costs from what such a pattern says (`Spec`: `cost`). So each pattern is worked out once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.spec import Cost
from nki_dist.program import Access, Instruction, MemoryRegion, instructions
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.dma import Transfer, first_partition, transfer
from nki_dist.timing.engines import drain_ns, locks_of, occupancy_ns, table_of
from nki_dist.timing.order import AccessPair, OrderGraph


@dataclass(frozen=True)
class Fixed:
    """What every execution of one instruction has in common."""

    cost: Cost
    occupancy: float
    drain: float
    transfer: Transfer | None
    locks: tuple[str, ...]
    function: tuple[str, str]  # an activation function and its set of tables
    chains: bool  # dependants on the same engine needn't wait for the result
    synchronises: bool
    activity: float  # share of Tensor's array that works


class Part(NamedTuple):
    """What one core executes: cores that execute the same share it."""

    graph: OrderGraph
    plan: Plan
    fixed: Mapping[int, Fixed]


def describe(graph: OrderGraph, arch: Arch, plan: Plan) -> dict[int, Fixed]:
    """By ordinal, for every instruction of a program; cores that run it share the result."""
    found: dict[int, Fixed] = {}
    cache: dict[Hashable, Fixed] = {}
    for i in instructions(graph.program.body):
        try:
            pattern = _pattern(i, plan)
            fixed = cache.get(pattern)
        except TypeError:  # lists of operands and the like aren't compared
            pattern, fixed = None, None
        if fixed is None:
            fixed = _described(i, graph.tensors[i.ordinal], arch, plan)
            if pattern is not None:
                cache[pattern] = fixed
        found[i.ordinal] = fixed
    return found


def _pattern(i: Instruction, plan: Plan) -> Hashable:
    """All that `_described` works with; None where it is more, as with run-time addresses."""
    if i.ordinal in plan.recast:
        return None
    found: list[Hashable] = [i.opcode, i.engine, plan.starts.get(i.ordinal)]
    moves, in_psum = i.engine == "dma", plan.in_psum
    for value in i.args.values():
        if not isinstance(value, Access):
            found.append(_plain(value) if isinstance(value, list) else value)
            continue
        if value.dynamic is not None:
            return None
        # Memories compare equal to others of their kind, so it's the object that counts.
        found += (value.shape, value.strides, value.dtype.name, id(value.storage.region))
        if moves:
            found.append(first_partition(value))
        if in_psum:
            found.append(value.storage.number in in_psum)
    return tuple(found)


def _plain(values: list[Any]) -> Hashable:
    """A list of numbers, or of lists of them, as something that can be compared."""
    if any(isinstance(value, Access) for value in values):
        raise TypeError("lists of operands aren't compared")
    return tuple([_plain(value) if isinstance(value, list) else value for value in values])


def _described(i: Instruction, tensors: AccessPair, arch: Arch, plan: Plan) -> Fixed:
    spec, shown = INSTRUCTIONS[i.opcode], plan.recast.get(i.ordinal, i)
    cost = plan.products.get(i.ordinal) or spec.cost_of(_as_compiled(shown, plan), arch)
    both = (*tensors[0], *tensors[1])
    dma = shown.engine == "dma" and not spec.synchronises
    return Fixed(
        cost,
        occupancy_ns(shown, cost, both, arch) + _more_starts(shown, plan, arch),
        drain_ns(shown.engine, arch),
        transfer(i, cost, *tensors, arch, plan.close) if dma else None,
        locks_of(shown, both, arch),
        table_of(i, spec),
        bool(spec.chains) and shown.engine == "tensor",
        spec.synchronises,
        1 / arch.partitions if i.ordinal in plan.products else 1.0,
    )


def _as_compiled(i: Instruction, plan: Plan) -> Instruction:
    """An instruction with its operands where the compiler has them."""
    moved = {
        name: _in_psum(a)
        for name, a in i.args.items()
        if isinstance(a, Access) and a.storage.number in plan.in_psum and a.region.on_chip
    }
    return i.with_args({**i.args, **moved}) if moved else i


def _in_psum(a: Access) -> Access:
    storage = copy(a.storage)
    storage.region = MemoryRegion.psum
    return Access(storage, a.offset, a.shape, a.strides, a.dtype, a.dynamic)


def _more_starts(i: Instruction, plan: Plan, arch: Arch) -> float:
    """What an instruction takes for beginning more often than once; less than 0 if it's merged."""
    starts = plan.starts.get(i.ordinal)
    if starts is None:
        return 0.0
    return arch.cycles_to_ns(arch.access_cycles * (starts - 1), i.engine)
