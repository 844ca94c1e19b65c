"""Operations to try: those of every instruction's cases, and of tables of functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import numpy as np

from nki_dist.isa.randomness import seeded
from nki_dist.linking.indirect import lowered
from nki_dist.linking.lowering import SCRATCH, Lowering
from nki_dist.ops.operation import Operation
from nki_dist.ops.place import Place
from tests.isa.effects.cases import CASES
from tests.isa.effects.running import Machine
from tests.ops.cases import MORE, by_themselves, conversions, masked
from tests.ops.trying import Memory, Sample


@cache
def samples() -> dict[str, list[Sample]]:
    """By function, operations with the memory that they find."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for sample in _samples():
        found[sample.operation.function.name].append(sample)
    return found


def _samples() -> Iterator[Sample]:
    for cases in (*CASES.values(), *MORE.values()):
        for case in cases:
            yield from of_instruction(case.traced())
    machine = masked().traced()
    machine.i.accumulation = "runtime"
    yield from of_instruction(machine, [a.storage.number for _, a in machine.with_mode("w")])
    for o in (*by_themselves(), *conversions()):
        yield Sample(o, _alone(o))


def of_instruction(machine: Machine, masked: Collection[int] = ()) -> Iterator[Sample]:
    """The operations of an instruction, each with the memory that those before it leave.

    Args:
        masked: see `indirect.lowered`.
    """
    kit, case = Lowering(machine.platform), machine.case
    operations = lowered(machine.i, kit, masked)
    for values in (case.values, case.also) if case.also else (case.values,):
        machine.fill(values)
        memory = _memory(machine, operations, kit.used)
        for o in operations:
            yield Sample(o, memory.copy())
            memory.run(o)


def _memory(machine: Machine, operations: Sequence[Operation], scratch: int) -> Memory:
    """What the operations of a case find."""
    memory = Memory({("storage", n): start.copy() for n, start in machine.start.items()})
    memory.registers[:] = [n % 7 + 1 for n in range(16)]
    memory.spaces[SCRATCH] = np.full(scratch, 0x3D, np.uint8)
    memory.rank = machine.slot.rank
    storages = {a.storage.number: a.storage for _, a in machine.tensors()}
    for o in operations:
        for a in o.arguments:
            if type(a) is not Place or a.space in memory.spaces:
                continue
            what, of = a.space
            if what == "accumulators":
                found = np.arange(machine.platform.partitions, dtype=np.float32) / 64 + 3
            elif what == "random":
                found = seeded(str(of), 4, machine.platform.partitions).reshape(-1)
            else:
                found = np.arange(storages[int(of)].nbytes // 2) % 3 == 0  # a mask
            memory.spaces[a.space] = found.view(np.uint8)
    return memory


def _alone(o: Operation) -> Memory:
    """Numbers of the types of its arguments."""
    memory, rng = Memory({}), np.random.default_rng(1)
    for a in o.arguments:
        if type(a) is Place:
            memory.spaces[a.space] = np.zeros(a.span()[1] + 8, np.uint8)
            memory.array(a)[...] = rng.integers(0, 2 if a.dtype == bool else 9, a.shape)
    return memory
