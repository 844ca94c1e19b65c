"""A compiled kernel: what launches need of it, without the compiler that made it.

Invariant: everything here follows from the programs, the outputs and the inputs, and is worked out
once. How tensors lie in HBM is for `hbm.layout`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from os import PathLike
from typing import Any
from uuid import uuid4

from nki_dist.compiler import saved
from nki_dist.compiler.config import BARRIER_CHECK
from nki_dist.compiler.missing import never_stored
from nki_dist.compiler.notes import noted
from nki_dist.compiler.passes.between_cores import OPEN_READS
from nki_dist.compiler.passes.unwritten import DOUBTFUL, REPLACED, UNSTORED
from nki_dist.compiler.widen import runs_in_float32, widened
from nki_dist.dtypes import float32
from nki_dist.errors import NkiWarning, UninitializedReadError
from nki_dist.forks import cached_property
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Program, Storage, TensorSignature, instructions
from nki_dist.program.walk import returned


@dataclass(frozen=True)
class Grid:
    """A launch grid.

    Attributes:
        shape: sizes of the axes; () for a launch without grid.
        cores: physical cores.
        core_axes: which axes are spread over the cores (`nl.nc`), in equal consecutive blocks;
            the instances of one core run one after the other.
    """

    shape: tuple[int, ...]
    cores: int
    core_axes: tuple[int, ...]

    def instances(self, core: int) -> list[tuple[int, ...]]:
        """Program ids of the instances that a core runs, in order."""
        per_core = prod(self.shape[a] for a in self.core_axes) // self.cores
        found = []
        for ids in product(*(range(n) for n in self.shape)):
            number = 0
            for axis in self.core_axes:
                number = number * self.shape[axis] + ids[axis]
            if number // per_core == core:
                found.append(ids)
        return found


@dataclass(eq=False)
class Compiled:
    """The programs of a launch.

    Attributes:
        programs: one per core.
        inputs: the tensor arguments, by index.
        wide: (role, index) of HBM tensors that hold float32 in place of their type; see `as_run`.
    """

    programs: list[Program]
    inputs: list[TensorSignature]
    wide: frozenset[tuple[str, int]] = frozenset()

    @cached_property
    def key(self) -> str:
        """What names it among all that hosts have linked, where no cache of kernels does."""
        return f"loaded-{uuid4().hex}"

    @cached_property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.programs[0].kernel

    @cached_property
    def outputs(self) -> Any:
        """What the kernel returned, as traced on core 0 (a tree with Access leaves)."""
        return self.programs[0].outputs

    @cached_property
    def shared(self) -> list[Storage]:
        """The shared allocations, by index."""
        return self.programs[0].shared()

    @cached_property
    def written_inputs(self) -> list[int]:
        """Indices of inputs that some core writes."""
        every = [s for program in self.programs for s in program.storages]
        return sorted({s.index for s in every if s.role == "input" and s.written})

    @cached_property
    def read_back(self) -> frozenset[int]:
        """Indices of inputs that are read after a launch: written ones and returned ones."""
        storages = [a.storage for _, a in returned(self.outputs)]
        return frozenset(self.written_inputs) | {s.index for s in storages if s.role == "input"}

    @cached_property
    def replaced(self) -> frozenset[tuple[str, int]]:
        """("input" | "shared", index) of tensors whose contents before a launch nobody can see."""
        first = self.programs[0]
        storages = [first.storages[n] for n in first.facts.get(REPLACED, ())]
        return frozenset((s.role, s.index) for s in storages)

    @cached_property
    def warnings(self) -> tuple[NkiWarning, ...]:
        """What compiling it brought that is no error; every launch gives these warnings."""
        return noted(self.programs)

    @cached_property
    def races_are_errors(self) -> bool:
        """Whether the kernel's configuration says so, whatever the world's policy is."""
        return BARRIER_CHECK in self.programs[0].facts

    @cached_property
    def files(self) -> tuple[tuple[str, float, int], ...]:
        """(path, time of change, bytes) of the files that were read while tracing."""
        return tuple(tuple(f) for p in self.programs for f in p.facts.get("files", ()))

    @cached_property
    def unstored(self) -> tuple[UninitializedReadError, ...]:
        """Errors of outputs that nothing is stored in, for when the cores are known to agree."""
        first = self.programs[0]
        numbers = first.facts.get(UNSTORED, ())
        return tuple(
            never_stored(first, path, a)
            for path, a in returned(self.outputs)
            if a.storage.number in numbers
        )

    @cached_property
    def undecided(self) -> bool:
        """Whether, for all that compiling knows, an output may hold what nobody wrote."""
        if any("zeroed" in p.facts for p in self.programs):
            return False
        names = ("poison", DOUBTFUL, OPEN_READS)
        return any(p.facts.get(name) for p in self.programs for name in names)

    @cached_property
    def zeroed(self) -> Compiled:
        """The same, for memory that holds zeros at first."""
        programs = [replace(p, facts={**p.facts, "zeroed": True}) for p in self.programs]
        return Compiled(programs, self.inputs)

    @cached_property
    def watched(self) -> bool:
        """Whether its run is recorded, to tell races of two cores from harmless overlaps."""
        return any(p.facts.get("watched") for p in self.programs)

    @cached_property
    def exchanges(self) -> bool:
        """Whether an instruction waits for other cores."""
        return any(
            INSTRUCTIONS[i.opcode].synchronises for p in self.programs for i in instructions(p.body)
        )

    @cached_property
    def sends(self) -> bool:
        """Whether cores send each other values, and don't only meet."""
        specs = {INSTRUCTIONS[i.opcode] for p in self.programs for i in instructions(p.body)}
        return any(spec.synchronises and spec.written for spec in specs)

    @cached_property
    def as_run(self) -> Compiled:
        """What hosts run: this, or with NKI_PRECISE_FP=0 the same in float32.

        Its outputs still say what the kernel returns to its caller.
        """
        if not runs_in_float32(self.programs):
            return self
        programs = widened(self.programs)
        wide = set()
        for before, after in zip(self.programs, programs):
            for old, new in zip(before.storages, after.storages):
                if new is not old and new.role in ("input", "shared"):
                    wide.add((new.role, new.index))
        inputs = [
            replace(s, dtype=float32) if ("input", s.index) in wide else s for s in self.inputs
        ]
        return Compiled(programs, inputs, frozenset(wide))

    def save(self, path: str | PathLike[str]) -> None:
        """Write it to a file, for `nki-dist disasm` or another machine.

        Raises:
            ProgramFormatError: a program holds something that can't be written down.
            LaunchError: the file can't be written.
        """
        saved.save(path, self.programs, self.inputs)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Compiled:
        """Read what `save` wrote, without running any code of it.

        Raises:
            ProgramFormatError: the file is malformed, truncated or of another version.
            LaunchError: the file can't be read.
        """
        return cls(*saved.load(path))
