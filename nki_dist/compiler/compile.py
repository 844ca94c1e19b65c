"""From a kernel and the description of its arguments to one program per core.

The kernel is traced once for every program instance; the instances of one physical core make up
that core's program. Then the passes run, core by core, and what must agree between cores is
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any

from nki_dist.arch import Arch
from nki_dist.checks import DEFAULT, Checks
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.compiler.config import BARRIER_CHECK, checks_of, config_of
from nki_dist.compiler.kernel_rules import check_arguments, check_grid, check_signature
from nki_dist.compiler.notes import is_due, note
from nki_dist.compiler.passes.accumulate import resolve_accumulation
from nki_dist.compiler.passes.allocate import allocate, check_hbm
from nki_dist.compiler.passes.conflicts import find_conflicts
from nki_dist.compiler.passes.overwritten import check_overwritten
from nki_dist.compiler.passes.schedule import check_schedule
from nki_dist.compiler.passes.uninitialised import check_uninitialised
from nki_dist.compiler.passes.unreturned import warn_of_unreturned
from nki_dist.compiler.source_rules import check_sources
from nki_dist.compiler.stand_ins import explained
from nki_dist.compiler.trace import Trace
from nki_dist.compiler.widen import FACT
from nki_dist.errors import CompileError, NkiValidationError
from nki_dist.isa.patterns import Patterns
from nki_dist.isa.spec import tracing_with
from nki_dist.program import Program, Storage, TensorSignature
from nki_dist.program.instruction import BETA1
from nki_dist.program.uncollected import uncollected
from nki_dist.program.walk import returned

Bind = Callable[[Trace], tuple[tuple[Any, ...], dict[str, Any]]]
CheckOutputs = Callable[[Trace, Any], Any]


@uncollected(acyclic=True)
def compile_kernel(
    function: Callable[..., Any],
    name: str,
    arch: Arch,
    grid: Grid,
    bind: Bind,
    inputs: Sequence[TensorSignature],
    outputs_of: CheckOutputs,
    checks: Checks = DEFAULT,
    precise: bool = True,
) -> Compiled:
    """Trace a kernel for every core of a grid and run the passes.

    Args:
        function: the kernel's Python function.
        bind: given a trace, makes the kernel's arguments with tensors in place of arrays.
        inputs: the tensor arguments.
        outputs_of: checks what the kernel returned and gives the tree to keep.
        checks: what the kernel is checked against.
        precise: False for NKI_PRECISE_FP=0; see compiler.widen.

    Raises:
        NkiError: whatever the kernel does wrong. Exceptions of the kernel's own pass unchanged.
    """
    programs: list[Program] = []
    functions: set[CodeType] = set()
    check_kernel(function, checks)
    checks = checks_of(function, checks)
    patterns = Patterns()
    for core in range(grid.cores):
        trace = Trace(name, arch, core, grid.cores, checks, is_beta1(function), patterns)
        args, kwargs = bind(trace)
        program = trace_core(function, grid, trace, args, kwargs, outputs_of)
        functions |= trace.locations.functions
        check_core(program, arch, checks)
        programs.append(program)
    check_launch(programs, arch, checks, precise)
    if not is_beta1(function):
        note_style(programs[0], function, grid, args, kwargs, functions, checks)
    return Compiled(programs, list(inputs))


def check_kernel(function: Callable[..., Any], checks: Checks) -> None:
    """Refuse a function that no kernel of its release can be, before it is traced."""
    if not is_beta1(function) and not checks.nki.strictly("all of Python"):
        check_signature(function)


def trace_core(
    function: Callable[..., Any],
    grid: Grid,
    trace: Trace,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    outputs_of: CheckOutputs,
) -> Program:
    """Run a kernel's Python for every program instance of a core: its program, before the passes.

    Args:
        trace: of that core.
        args, kwargs: the kernel's arguments, with tensors of the trace in place of arrays.
    """
    trace.locations.functions.clear()  # what binds arguments isn't the kernel's
    with tracing_with(trace):
        for ids in grid.instances(trace.core):
            with trace.instance(grid.shape, ids):
                try:
                    result = function(*args, **kwargs)
                except (AttributeError, TypeError) as error:
                    told = explained(error, function, args, kwargs)
                    if told is error:
                        raise
                    raise told.with_traceback(error.__traceback__) from None
            outputs = outputs_of(trace, result)
    program = trace.finish()
    program.outputs = outputs
    if is_beta1(function):
        program.facts[BETA1] = True
    config = config_of(function)
    if config is not None and config.compile is not None and config.compile.barrier_check:
        program.facts[BARRIER_CHECK] = True
    return program


def check_core(program: Program, arch: Arch, checks: Checks) -> None:
    """The passes that need one core's program only."""
    resolve_accumulation(program)
    allocate(program, arch, checks.capacity == "spill", checks.strict)
    check_overwritten(program)


def check_launch(programs: list[Program], arch: Arch, checks: Checks, precise: bool) -> None:
    """The passes that look at all cores of a launch, after `check_core` of each."""
    check_schedule(programs)
    _compare_outputs(programs)
    _compare_shared(programs)
    check_hbm(programs, arch)
    check_uninitialised(programs, checks)
    warn_of_unreturned(programs)
    if checks.races != "off":
        find_conflicts(programs)
    if not precise:
        for program in programs:
            program.facts[FACT] = 0


def note_style(
    program: Program,
    function: Callable[..., Any],
    grid: Grid,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    functions: set[CodeType],
    checks: Checks,
) -> None:
    """Keep warnings of what AWS's compiler is reported to refuse, apart from instructions."""
    found = [*check_grid(function, grid), *check_arguments(function, args, kwargs)]
    if not checks.nki.strictly("all of Python"):
        found += check_sources(functions)
    for warning in found:
        if is_due(warning, checks):
            note(program, warning)


def is_beta1(function: Callable[..., Any]) -> bool:
    """Whether it is a kernel of Beta 1, which later releases' rules don't hold for."""
    return hasattr(function, "__beta1__")


def _compare_shared(programs: Sequence[Program]) -> None:
    """Shared allocations are matched by sequence number; report the first difference."""
    first = programs[0].shared()
    for program in programs[1:]:
        other = program.shared()
        for number, (a, b) in enumerate(zip(first, other)):
            compare_allocation(number, (programs[0], a), (program, b))
        if len(first) != len(other):
            both = (first, programs[0]), (other, program)
            more, longer = max(both, key=lambda pair: len(pair[0]))
            extra = more[min(len(first), len(other))]
            raise NkiValidationError(
                f"core 0 makes {len(first)} shared_hbm allocations, core {program.core} "
                f"{len(other)}; all cores must make the same ones in the same order. The first "
                f"without a partner is {extra.label}",
                location=longer.where(extra.location),
                core=longer.core,
                code="cores-allocate-alike",
                numbers={"got": len(other), "allowed": len(first)},
            )


def compare_allocation(
    number: int, first: tuple[Program, Storage], other: tuple[Program, Storage]
) -> None:
    """Refuse a shared allocation that another core makes otherwise.

    Args:
        number: of the allocation.
        first, other: two cores' programs, and what they allocate.

    Raises:
        NkiValidationError: shape, dtype or contents differ.
    """
    (one, a), (program, b) = first, other
    if (a.shape, a.dtype, a.role, a.data) != (b.shape, b.dtype, b.role, b.data):
        raise NkiValidationError(
            f"shared_hbm allocation number {number} differs between cores: core {one.core} makes "
            f"{a.label} at {one.where(a.location)}, core {program.core} "
            f"makes {b.label}; all cores must make the same allocations in the same order",
            location=program.where(b.location),
            core=program.core,
            code="cores-allocate-alike",
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
            code="cores-return-alike",
        )
