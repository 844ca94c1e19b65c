"""All mistakes of a kernel's instructions, not just the first: for reports, not for launches.

A kernel is traced once more, and instructions whose operands are refused are left out. What a later
instruction may do depends on shapes, types and memories of its operands, which a dropped
instruction doesn't change, so no mistake follows from another. Contents would: the programs aren't
looked at further. A mistake outside instructions (an index, an allocation) ends the survey, because
what would come of it can't be known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nki_dist.arch import Arch
from nki_dist.checks import Checks
from nki_dist.compiler.compile import Bind, CheckOutputs, is_beta1, trace_core
from nki_dist.compiler.compiled import Grid
from nki_dist.compiler.config import checks_of
from nki_dist.compiler.trace import Trace
from nki_dist.errors import NkiError


@dataclass
class Survey:
    """What a kernel does wrong.

    Attributes:
        errors: in the order of the kernel, core after core.
        complete: whether the kernel was traced to its end on every core.
        outputs: what core 0 returned (a tree with Access leaves), if complete.
        written: indices of the inputs that instructions write, those left out aside.
    """

    errors: list[NkiError] = field(default_factory=list)
    complete: bool = False
    outputs: Any = None
    written: set[int] = field(default_factory=set)


def survey(
    function: Callable[..., Any],
    name: str,
    arch: Arch,
    grid: Grid,
    bind: Bind,
    outputs_of: CheckOutputs,
    checks: Checks,
) -> Survey:
    """Trace a kernel for every core of a grid, past instructions that are refused.

    Args:
        function, name, arch, grid, bind, outputs_of, checks: as of compile_kernel.
    """
    checks = checks_of(function, checks)
    found = Survey()
    outputs: list[Any] = []
    for core in range(grid.cores):
        trace = Trace(name, arch, core, grid.cores, checks, is_beta1(function))
        trace.dropped = found.errors
        try:
            args, kwargs = bind(trace)
            program = trace_core(function, grid, trace, args, kwargs, outputs_of)
            outputs.append(program.outputs)
            found.written |= {s.index for s in program.storages if s.role == "input" and s.written}
        except NkiError as error:
            found.errors.append(error)
            return found
        except Exception:  # the kernel's own; whoever compiled it has seen the first of them
            return found
    found.complete, found.outputs = True, outputs[0]
    return found
