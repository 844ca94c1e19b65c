"""Find reads of elements that nobody has written, and follow what they bring in.

Each core's program is interpreted in program order, remembering which elements of every storage
have been written; loop bodies are walked once. What can't be decided is decided for the kernel (a
write with a run-time offset writes everything), so that no correct program is refused; storages
where that could hide an unwritten element are poisoned too, so that results stay reproducible.

Published kernels read padding they never wrote and discard the result, so by default a read is no
error: its storage is poisoned and `taint` follows the elements, to outputs, indices and registers.
Strict mode reports the read itself.

Invariant: a storage that isn't in `facts["poison"]` is never read where it wasn't written.

A shared tensor that another core writes counts as written here; `between_cores` judges what is read
of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nki_dist.checks import DEFAULT, Checks
from nki_dist.compiler.passes.between_cores import OPEN_READS, Use, open_reads
from nki_dist.compiler.passes.elements import LARGEST, Elements, covers
from nki_dist.compiler.passes.taint import LIFTED, Taint
from nki_dist.compiler.passes.unwritten import REPLACED, WRITTEN_INPUTS, Stored, check_outputs
from nki_dist.errors import UninitializedReadError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Block, Instruction, Loop, Program, Storage
from nki_dist.program.walk import index_tensors, returned, tensors

# How often the mask of a storage is searched for gaps when it may be full.
WRITES_COUNTED: Final = 16


def check_uninitialised(programs: Sequence[Program], checks: Checks = DEFAULT) -> None:
    """Check the programs of one launch, one per core.

    Sets facts `poison` (numbers of storages to fill with poison when their life begins), `zeroed`
    (they are filled with zeros instead, and so is shared memory) and `uninitialised_reads`
    ([ordinal, storage, location] of each suspicious read), `written_inputs` (indices of arguments
    that some core writes), and of the first core `open_reads`, numbers of shared tensors of which
    a core may read what none has written, and `replaced`,
    numbers of arguments and shared tensors whose contents before the launch nobody can see, as
    every element is surely written, and none is read before.

    Raises:
        UninitializedReadError: `unwritten="strict"`: an element is read before it's written;
            "error": such an element reaches an output, an index or a register.
    """
    written: dict[tuple[str, int], list[int]] = {}
    for p in programs:
        for s in p.storages:
            if s.role != "local" and s.written:
                written.setdefault(s.key, []).append(p.core)
    scans = []
    for p in programs:
        scan = Scan(p, written, checks.strict)
        scan.run()
        p.facts["poison"] = sorted(scan.poison)
        p.facts["uninitialised_reads"] = scan.flagged
        p.facts[WRITTEN_INPUTS] = sorted(n for role, n in written if role == "input")
        if checks.unwritten == "zero":
            p.facts["zeroed"] = True
        scans.append(scan)
    if not checks.defined:
        _follow(scans)
    alone = scans[0].complete if len(scans) == 1 else frozenset[int]()
    whole = check_outputs(
        [scan.program for scan in scans], [scan.stored for scan in scans], alone, checks
    )
    storages = programs[0].storages
    read = open_reads(programs, [scan.uses for scan in scans])
    opened = [s.number for s in storages if s.key in read] if read else []
    programs[0].facts[OPEN_READS] = opened
    if len(scans) == 1:
        replaced = {n for n in alone if storages[n].role in ("input", "shared")}
    else:
        read |= {scan.program.storages[n].key for scan in scans for n in scan.poison}
        replaced = {n for n in whole if storages[n].key not in read}
    programs[0].facts[REPLACED] = sorted(replaced)


def _follow(scans: Sequence[Scan]) -> None:
    """Follow what suspicious reads brought in; cores without any pay nothing."""
    taints: list[Taint | None] = []
    for scan in scans:
        taint = None
        if scan.flagged:
            taint = Taint(scan.program, scan.flagged, scan.outliving, scan.foreign)
            taint.run()
        taints.append(taint)
    pairs = list(zip((scan.stored for scan in scans), taints, strict=True))
    for n, taint in enumerate(taints):
        if taint is not None:
            taint.check([pair for m, pair in enumerate(pairs) if m != n])


class _Written(Elements):
    """Which elements of a storage have been written."""

    __slots__ = ("_checks", "_left")

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self._left = self.mask.size  # at least so many units are unwritten
        self._checks = WRITES_COUNTED

    def write(self, a: Access) -> bool:
        """Mark an access; True when every element is known to be written.

        Counting tells when it's worth looking at the whole mask, so that a tensor filled in parts
        is known to be full at its last part, and reading it costs nothing from then on.
        """
        units = self.units(a)
        units[...] = True
        self._left -= units.size
        if self._left > 0 or not self._checks:
            return False
        self._checks -= 1
        self._left = self.mask.size - int(np.count_nonzero(self.mask))
        return not self._left


class Scan:
    """Which elements of one core's storages have been written, in program order.

    Attributes:
        poison: storages where an unwritten element may be read.
        flagged: [ordinal, storage number, location] of reads of elements that aren't written.
        kept: places of the tensors that outlive the kernel, by storage number.
        foreign: numbers of shared storages that another core writes.
        stored: writes to `kept` storages, by (role, index), with whether they surely happen.
        uses: sure stores to shared storages, and loads of those that another core writes.
        complete: numbers of storages all of whose elements are surely written, and none of them
            read before.
    """

    def __init__(
        self, program: Program, written: dict[tuple[str, int], list[int]], strict: bool
    ) -> None:
        self.program = program
        self.strict = strict
        self.poison: set[int] = set()
        self.flagged: list[list[int]] = []
        self.outliving: dict[int, list[tuple[str, Access | None]]] = {}
        self.stored: Stored = {}
        self.foreign: set[int] = set()
        self.uses: list[Use] = []
        self.complete: set[int] = set()
        self._full: set[int] = set()  # nothing left to write, or not ours to judge
        self._partial: dict[int, _Written] = {}
        for path, a in returned(program.outputs):
            self.outliving.setdefault(a.storage.number, []).append((f"output{path}", a))
        for s in program.storages:
            self._begin(s, written.get(s.key, []) if s.role != "local" else [])

    def _begin(self, s: Storage, writers: list[int]) -> None:
        if s.role == "input" and s.written:
            self.outliving.setdefault(s.number, []).append((f"input {s.name}", None))
        elif s.role in ("input", "constant"):
            self._full.add(s.number)
        if any(core != self.program.core for core in writers):
            self.foreign.add(s.number)

    def run(self) -> None:
        self._block(self.program.body, 0)

    def _block(self, block: Block, outside: int) -> None:
        """Interpret a block; writes to storages below `outside` may not happen at all."""
        full, outliving = self._full, self.outliving
        for i in block:
            if isinstance(i, Loop):
                self._block(i.body, outside if i.rounds else i.outside)
                continue
            args, spec = i.args, INSTRUCTIONS[i.opcode]
            counts, partial = spec.counts, spec.effects.partial
            role: Any = spec.roles[counts] if counts else None
            # No operand of an instruction that has a kind is addressed at run time.
            for name in spec.tensors if i.kind is None else ():
                for a in index_tensors(tensors(args[name])):
                    self._read(i, a)
            for name in spec.read:
                value = role.read(i) if name == counts else args[name]
                if isinstance(value, Access):
                    if value.storage.number not in full:
                        self._read(i, value)
                elif type(value) is list:
                    for a in tensors(value):
                        self._read(i, a)
            if i.accumulation == "add":
                self._read(i, args["dst"])
            for name in spec.written:
                value = role.written(i) if name == counts else args[name]
                for a in (value,) if isinstance(value, Access) else tensors(value):
                    number = a.storage.number
                    doubtful = number < outside or (partial and spec.effects.keeps(i))
                    if number in outliving:
                        sure = not (doubtful or a.dynamic or spec.may_skip(i))
                        self.stored.setdefault(a.storage.key, []).append((a, sure))
                    if number not in full:
                        self._write(i, a, doubtful)

    def _read(self, i: Instruction, a: Access) -> None:
        number = a.storage.number
        if number in self._full:
            return
        if number in self.foreign:
            self.uses.append(Use(i.ordinal, a, False))
            return
        state = self._partial.get(number)
        if a.storage.role == "input":
            if state is None or a.dynamic is not None or not state.units(a).all():
                self._depends(number)
            return
        if state is not None:
            if a.dynamic is not None:  # whatever part of it has been written may be meant
                self.poison.add(number)
                return
            if state.units(a).all():
                if covers(a):
                    self._full.add(number)
                    del self._partial[number]
                return
        self.poison.add(number)
        self.flagged.append([i.ordinal, number, i.location])
        if self.strict:
            raise UninitializedReadError(
                f"{i.opcode} reads elements of {a.storage.label} that nothing has written; "
                f"allocated at {self.program.where(a.storage.location) or 'unknown line'}",
                **self.program.at(i),
                policy=LIFTED,
                code="unwritten-read",
            )

    def _depends(self, number: int) -> None:
        """What the caller passed in an argument counts, though the kernel writes to it."""
        self._full.add(number)
        self._partial.pop(number, None)

    def _write(self, i: Instruction, a: Access, doubtful: bool) -> None:
        number = a.storage.number
        doubtful |= a.dynamic is not None or INSTRUCTIONS[i.opcode].may_skip(i)
        if a.storage.role == "shared" and not doubtful and self.program.cores > 1:
            self.uses.append(Use(i.ordinal, a, True))
        if number in self.foreign:
            return
        whole = covers(a)
        too_large = not whole and a.storage.nbytes // a.storage.dtype.itemsize > LARGEST
        if doubtful or too_large:
            if a.storage.role == "input":
                self._depends(number)
                return
            self.poison.add(number)
        whole = whole or too_large or a.dynamic is not None
        if whole:
            self._full.add(number)
            self._partial.pop(number, None)
            if number not in self.poison:
                self.complete.add(number)
            return
        state = self._partial.get(number)
        if state is None:
            state = self._partial[number] = _Written(a.storage)
        if state.write(a):
            self._full.add(number)
            del self._partial[number]
            if number not in self.poison:  # no write was doubtful, no read came before
                self.complete.add(number)
