"""Compiling kernels in tests without running them, and the place of a kernel line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from nki_dist import arch, dtypes
from nki_dist.checks import checks_of
from nki_dist.compiler.compile import compile_kernel
from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.launcher.binding import collect_outputs
from nki_dist.program import Storage, TensorSignature

Signature = tuple[tuple[int, ...], Any]


def compiled(
    kernel: Callable[..., Any],
    *inputs: Signature,
    lnc: int = 1,
    platform: str = "trn2",
    check: str = "default",
) -> Compiled:
    """Programs of `kernel(*inputs)`; inputs are (shape, dtype)."""
    signatures = [
        TensorSignature(n, shape, dtypes.of(dtype), f"arg{n}")
        for n, (shape, dtype) in enumerate(inputs)
    ]

    def bind(trace: Any) -> tuple[tuple, dict]:
        return tuple(trace.input(s.index, s.shape, s.dtype, s.name) for s in signatures), {}

    grid = Grid((lnc,), lnc, (0,)) if lnc > 1 else Grid((), 1, ())
    outputs = collect_outputs(kernel)
    platform_arch = arch.get(platform)
    return compile_kernel(
        kernel, kernel.__name__, platform_arch, grid, bind, signatures, outputs, checks_of(check)
    )


def line_of(kernel: Callable[..., Any], text: str, which: int = 0) -> str:
    """`file:line` of the `which`-th line of the kernel's source that contains `text`."""
    lines, first = inspect.getsourcelines(kernel)
    found = [n for n, line in enumerate(lines) if text in line]
    return f"{inspect.getsourcefile(kernel)}:{first + found[which]}"


def named(storages: Sequence[Storage], name: str) -> Storage:
    """The storage with a label."""
    (found,) = [s for s in storages if s.name == name]
    return found
