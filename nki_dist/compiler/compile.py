"""From a kernel and the description of its arguments to one program per core.

The kernel is traced once for every program instance; the instances of one physical core make up
that core's program. Then the passes run, core by core, and what must agree between cores is
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from os import PathLike
from typing import Any

from nki_dist.arch import Arch
from nki_dist.compiler.passes.accumulate import resolve_accumulation
from nki_dist.compiler.passes.allocate import allocate, check_hbm
from nki_dist.compiler.passes.conflicts import find_conflicts
from nki_dist.compiler.passes.overwritten import check_overwritten
from nki_dist.compiler.passes.schedule import check_schedule
from nki_dist.compiler.passes.uninitialised import check_uninitialised, returned
from nki_dist.compiler.trace import Trace
from nki_dist.compiler.widen import FACT, runs_in_float32, widened
from nki_dist.dtypes import DType, float32
from nki_dist.errors import CompileError, NkiValidationError
from nki_dist.isa.spec import tracing_with
from nki_dist.program import Program, Storage


@dataclass(frozen=True)
class TensorSignature:
    """What the compiler knows of a tensor argument."""

    index: int
    shape: tuple[int, ...]
    dtype: DType
    name: str


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


@dataclass
class Compiled:
    """The programs of a launch and how their HBM tensors lie in the stack.

    Attributes:
        programs: one per core.
        outputs: what the kernel returned, as traced on core 0 (a tree with Access leaves).
        inputs: the tensor arguments, by index.
        written_inputs: indices of inputs that some core writes.
        offsets: byte offset in the HBM stack of each ("input" | "shared", index).
        stack_bytes: size of the stack.
        shared: the shared allocations, by index.
        wide: (role, index) of HBM tensors that hold float32 in place of their type; see `as_run`.
    """

    programs: list[Program]
    outputs: Any
    inputs: list[TensorSignature]
    written_inputs: list[int] = field(default_factory=list)
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    stack_bytes: int = 0
    shared: list[Storage] = field(default_factory=list)
    wide: frozenset[tuple[str, int]] = frozenset()

    @cached_property
    def as_run(self) -> Compiled:
        """What hosts run: this, or with NKI_PRECISE_FP=0 the same in float32, laid out anew.

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
        made = Compiled(programs, self.outputs, inputs, wide=frozenset(wide))
        made.shared = _shared(programs[0])
        _lay_out(made)
        return made

    def save(self, path: str | PathLike[str]) -> None:
        """Write the programs and their layout to a file, for `nki-dist disasm` or another machine.

        Raises:
            LaunchError: the file can't be written.
        """
        from nki_dist.compiler.saved import save_compiled

        save_compiled(self, path)

    @staticmethod
    def load(path: str | PathLike[str]) -> Compiled:
        """Read what `save` wrote, without running any code of it.

        Raises:
            ProgramFormatError: the file is malformed, truncated or of another version.
        """
        from nki_dist.compiler.saved import load_compiled

        return load_compiled(path)


Bind = Callable[[Trace], tuple[tuple, dict]]
CheckOutputs = Callable[[Trace, Any], Any]


def compile_kernel(
    function: Callable[..., Any],
    name: str,
    arch: Arch,
    grid: Grid,
    bind: Bind,
    inputs: Sequence[TensorSignature],
    outputs_of: CheckOutputs,
    strict: bool = False,
    precise: bool = True,
    spill: bool = False,
) -> Compiled:
    """Trace a kernel for every core of a grid and run the passes.

    Args:
        function: the kernel's Python function.
        bind: given a trace, makes the kernel's arguments with tensors in place of arrays.
        inputs: the tensor arguments.
        outputs_of: checks what the kernel returned and gives the tree to keep.
        precise: False for NKI_PRECISE_FP=0; see compiler.widen.
        spill: what doesn't fit into SBUF or PSUM is no error; see passes.allocate.

    Raises:
        NkiError: whatever the kernel does wrong. Exceptions of the kernel's own pass unchanged.
    """
    programs: list[Program] = []
    outputs: Any = None
    for core in range(grid.cores):
        trace = Trace(name, arch, core, grid.cores, strict)
        args, kwargs = bind(trace)
        with tracing_with(trace):
            for ids in grid.instances(core):
                with trace.instance(grid.shape, ids):
                    result = function(*args, **kwargs)
                returned = outputs_of(trace, result)
        program = trace.finish()
        program.outputs = returned
        if core == 0:
            outputs = returned
        resolve_accumulation(program)
        allocate(program, arch, spill)
        check_overwritten(program)
        programs.append(program)
    check_schedule(programs)
    _compare_outputs(programs)
    compiled = Compiled(programs, outputs, list(inputs))
    _compare_shared(compiled)
    check_hbm(programs, arch)
    check_uninitialised(programs, strict)
    find_conflicts(programs)
    if not precise:
        for program in programs:
            program.facts[FACT] = 0
    _lay_out(compiled)
    return compiled


def _shared(program: Program) -> list[Storage]:
    found = [s for s in program.storages if s.role in ("shared", "constant")]
    return sorted(found, key=lambda s: s.index)


def _compare_shared(compiled: Compiled) -> None:
    """Shared allocations are matched by sequence number; report the first difference."""
    first = _shared(compiled.programs[0])
    compiled.shared = first
    for program in compiled.programs[1:]:
        other = _shared(program)
        for number, (a, b) in enumerate(zip(first, other)):
            if (a.shape, a.dtype, a.role, a.data) != (b.shape, b.dtype, b.role, b.data):
                raise NkiValidationError(
                    f"shared_hbm allocation number {number} differs between cores: core 0 makes "
                    f"{a.label} at {compiled.programs[0].where(a.location)}, core {program.core} "
                    f"makes {b.label}; all cores must make the same allocations in the same order",
                    location=program.where(b.location),
                    core=program.core,
                )
        if len(first) != len(other):
            more, longer = (
                (first, compiled.programs[0])
                if len(first) > len(other)
                else (
                    other,
                    program,
                )
            )
            extra = more[min(len(first), len(other))]
            raise NkiValidationError(
                f"core 0 makes {len(first)} shared_hbm allocations, core {program.core} "
                f"{len(other)}; all cores must make the same ones in the same order. The first "
                f"without a partner is {extra.label}",
                location=longer.where(extra.location),
                core=longer.core,
            )


def _compare_outputs(programs: Sequence[Program]) -> None:
    """What core 0 returns is the result; another core may return the same, or nothing."""
    trees = [list(returned(program.outputs)) for program in programs]
    places = [
        [(path, a.storage.role, a.storage.index, a.offset, a.shape, a.strides) for path, a in tree]
        for tree in trees
    ]
    for program, tree, found in zip(programs[1:], trees[1:], places[1:]):
        if not tree or found == places[0]:
            continue
        first, other = (", ".join(a.storage.label for _, a in t) for t in (trees[0], tree))
        raise CompileError(
            f"core 0 returns {first or 'nothing'}, core {program.core} returns {other}; all cores "
            "must return the same tensors",
            location=program.where(tree[0][1].storage.location),
            core=program.core,
        )


def _lay_out(compiled: Compiled) -> None:
    written = set()
    for program in compiled.programs:
        for s in program.storages:
            if s.role == "input" and s.written:
                written.add(s.index)
    compiled.written_inputs = sorted(written)
    kept = read_back(compiled)
    later = [s for s in compiled.inputs if s.index not in kept]
    at = 0
    for signature in [s for s in compiled.inputs if s.index in kept]:
        at = _placed(compiled, ("input", signature.index), at, input_bytes(signature))
    for s in compiled.shared:
        if s.role == "shared":
            at = _placed(compiled, ("shared", s.index), at, s.nbytes)
    for signature in later:  # at the end, where a launcher may leave out what ranks can share
        at = _placed(compiled, ("input", signature.index), at, input_bytes(signature))
    compiled.stack_bytes = at


def _placed(compiled: Compiled, key: tuple[str, int], at: int, nbytes: int) -> int:
    """Put something at an offset; returns the next free one."""
    compiled.offsets[key] = at
    return at + -(-nbytes // 64) * 64


def input_bytes(signature: TensorSignature) -> int:
    """Size of an input."""
    return prod(signature.shape) * signature.dtype.itemsize


def read_back(compiled: Compiled) -> set[int]:
    """Indices of inputs that are read after a launch: written ones and returned ones."""
    accesses = [a for _, a in returned(compiled.outputs)]
    return set(compiled.written_inputs) | {
        a.storage.index for a in accesses if a.storage.role == "input"
    }
