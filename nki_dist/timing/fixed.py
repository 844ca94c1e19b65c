"""What every execution of an instruction has in common: its cost, its transfer, its locks.

Most instructions of a kernel repeat a few patterns at other addresses, and an instruction's file
works out costs from what such a pattern says (`Spec`: `cost`). So each pattern is worked out once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from nki_dist.arch import Arch
from nki_dist.isa.spec import Cost, Spec
from nki_dist.program import Access, Instruction, instructions
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


def describe(
    graph: OrderGraph, table: Mapping[str, Spec], arch: Arch, plan: Plan
) -> dict[int, Fixed]:
    """By ordinal, for every instruction of a program; cores that run it share the result."""
    found: dict[int, Fixed] = {}
    known: dict[Hashable, Fixed] = {}
    for i in instructions(graph.program.body):
        spec, together = table[i.opcode], plan.merged.get(i.ordinal)
        pattern = _pattern(i, together)
        try:
            fixed = known.get(pattern)
        except TypeError:  # lists of operands and the like aren't compared
            pattern, fixed = None, None
        if fixed is None:
            fixed = _described(i, graph.tensors[i.ordinal], spec, arch, together)
            if pattern is not None:
                known[pattern] = fixed
        found[i.ordinal] = fixed
    return found


def _pattern(i: Instruction, together: float | None) -> Hashable:
    """All that `_described` works with; None where an address is only known at run time."""
    found: list[Hashable] = [i.opcode, i.engine, together]
    moves = i.engine == "dma"
    for value in i.args.values():
        if not isinstance(value, Access):
            found.append(value)
            continue
        if value.dynamic is not None:
            return None
        # Memories compare equal to others of their kind, so it's the object that counts.
        found += (value.shape, value.strides, value.dtype.name, id(value.storage.region))
        if moves:
            found.append(first_partition(value))
    return tuple(found)


def _described(
    i: Instruction, tensors: AccessPair, spec: Spec, arch: Arch, together: float | None
) -> Fixed:
    cost = spec.price(i, arch)
    both = (*tensors[0], *tensors[1])
    dma = i.engine == "dma" and not spec.synchronises
    return Fixed(
        cost,
        occupancy_ns(i, cost, both, arch) - _shared_start(i, together, arch),
        drain_ns(i.engine, arch),
        transfer(i, cost, *tensors, arch) if dma else None,
        locks_of(i, both, arch),
        table_of(i, spec),
        bool(spec.chains) and i.engine == "tensor",
        spec.synchronises,
    )


def _shared_start(i: Instruction, together: float | None, arch: Arch) -> float:
    """What an instruction saves that is merged with others of its line."""
    if together is None:
        return 0.0
    return arch.cycles_to_ns(arch.access_cycles * (1 - 1 / together), i.engine)
