"""What a launch carried out, as data: every instruction with its operands, before and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from nki_dist.insight.capture import Captured
from nki_dist.insight.log import Log
from nki_dist.insight.probe import Probe
from nki_dist.insight.steps import Printed, plural, unanswered
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction
from nki_dist.program.walk import tensors


def parameters(i: Instruction) -> tuple[dict[str, Access], dict[str, Access]]:
    """What an instruction reads and what it writes, by parameter: of a list `srcs[0]` and on, and
    `src.index` for what the rows or columns of `src` are looked up in."""
    spec = INSTRUCTIONS[i.opcode]
    reads: dict[str, Access] = {}
    writes: dict[str, Access] = {}
    for name in spec.tensors:
        mode, value = spec.roles[name].mode, i.args[name]
        for at, a in enumerate(tensors(value)):
            called = name if value is a else f"{name}[{at}]"
            if "r" in mode:
                reads[called] = a
            if a.dynamic is not None and isinstance(a.dynamic.source, Access):
                reads[f"{called}.index"] = a.dynamic.source
            if "w" in mode:
                writes[called] = a
    return reads, writes


@dataclass(frozen=True)
class Operand:
    """A tensor operand of one instruction.

    Attributes:
        tensor: what messages call the tensor.
        memory: "sbuf", "psum", "private_hbm", "shared_hbm".
        shape, dtype: of the operand, which may be a view of the tensor.
    """

    tensor: str
    memory: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Executed(Printed):
    """An instruction that was carried out.

    Attributes:
        step: its number, as other answers of the record have it.
        location: "file.py:12" of the kernel's line, or None.
        core, rank: the core within its rank, and the rank.
        instruction: such as "nisa.activation".
        reads, writes: Operands by parameter.
    """

    step: int
    location: str | None
    core: int
    rank: int
    instruction: str
    reads: Mapping[str, Operand]
    writes: Mapping[str, Operand]
    _all: Executions = field(repr=False)

    def before(self) -> dict[str, np.ndarray]:
        """Copies of its operands before it ran, by parameter, in the shapes that it uses."""
        return self._all.values(self.step)[0]

    def after(self) -> dict[str, np.ndarray]:
        """The same when it had run."""
        return self._all.values(self.step)[1]

    def __str__(self) -> str:
        told = ", ".join(f"{n} {o.tensor}" for n, o in {**self.reads, **self.writes}.items())
        where = f"rank {self.rank} core {self.core} {self.location}"
        return f"step {self.step} {where} {self.instruction}({told})"


class Executions(Printed, list[Executed]):
    """Everything that a launch carried out, in the order of its steps.

    Values are had by carrying the launch out again; each time, those of the steps that follow are
    kept, too, so that going through all of them takes few times.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._captured = Captured(log)
        super().__init__(self._executed(n) for n, i in enumerate(log.instructions) if i is not None)

    def _executed(self, number: int) -> Executed:
        where, core, rank, name = self._log.who(number)
        reads, writes = (
            {
                n: Operand(a.storage.title, a.region.value, tuple(a.shape), str(a.dtype))
                for n, a in accesses.items()
            }
            for accesses in parameters(self._log.at(number))
        )
        return Executed(number, where, core, rank, name, reads, writes, self)

    def values(self, number: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Operands of the instruction that began at a number, before and after it.

        Raises:
            LaunchError: none began there.
        """
        if not 0 <= number < len(self._log.instructions) or self._log.instructions[number] is None:
            most = len(self._log.instructions) - 1
            fault = f"step {number}: no instruction begins there"
            raise unanswered(fault, got=number, least=0, most=most)
        log, every = self._log, range(number, len(self._log.instructions))
        found = self._captured.of(number, (n for n in every if log.instructions[n] is not None))
        probe, at = Probe(found), log.rendezvous(number).index(number)
        probe.run()
        reads, writes = parameters(log.at(number))
        each = {**reads, **writes}
        regions = dict(zip(each, log.regions(number, [*each.values()])))
        bits, kit = found[at].bits, probe.kits[at]
        before = {name: r.values(bits[id(r)].copy()) for name, r in regions.items()}
        return before, {name: r.values(r.get(kit)) for name, r in regions.items()}

    def __str__(self) -> str:
        return plural(len(self), "step")

    __repr__ = __str__
