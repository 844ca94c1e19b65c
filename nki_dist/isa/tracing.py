"""Who records the instructions that a kernel calls, and what rules may ask of it.

Rules differ between releases of NKI: what a later document forbids, kernels of Beta 1 may do. A
rule whose document is younger asks `todays_kernel()`. Programs that were saved were asked when they
were traced; nobody traces when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from nki_dist.arch import Arch, from_environment
from nki_dist.errors import CompilerMayRejectWarning, LaunchError
from nki_dist.release import RELEASES, Release

__tracebackhide__ = True  # asks pytest to end tracebacks in the caller


_tracer: ContextVar[Any] = ContextVar("nki_dist_tracer", default=None)


def current_tracer() -> Any:
    """The tracer of the kernel being traced in this context: a compiler.trace.Trace, of a later
    layer.

    Raises:
        LaunchError: no kernel is being traced.
    """
    tracer = _tracer.get()
    if tracer is None:
        raise LaunchError(
            "nki.language and nki.isa functions work only inside a kernel; decorate the function "
            "with @nki.jit and call it with arrays",
            code="outside-kernel",
        )
    return tracer


tracing: Final = _tracer.get  # true while a kernel is being traced in this context


def platform() -> Arch:
    """That of the kernel that is being traced, the environment's outside one."""
    tracer = _tracer.get()
    return from_environment() if tracer is None else tracer.arch


@contextmanager
def rules_of_beta1() -> Iterator[None]:
    """Rules of later releases don't hold for what is traced inside: a kernel of Beta 1, or one that
    a kernel of today calls."""
    tracer = current_tracer()
    before, tracer.beta1 = tracer.beta1, True
    try:
        yield
    finally:
        tracer.beta1 = before


def todays_kernel() -> bool:
    """Whether a kernel is being traced that Beta 1's rules don't hold for.

    Rules that came after Beta 1 ask first; programs that were saved have been asked.
    """
    tracer = _tracer.get()
    return tracer is not None and not tracer.beta1


def may_reject(message: str, *, code: str, hint: str | None = None) -> None:
    """Warn that AWS's compiler may refuse what runs here; of kernels of Beta 1, nothing is said."""
    tracer = _tracer.get()
    if tracer is not None and not tracer.beta1:
        tracer.warn(CompilerMayRejectWarning(message, code=code, hint=hint))


def release_in_force(tracer: Any) -> Release:
    """What the kernel is checked against that is being traced; Beta 1's aren't checked against what
    0.7 changed."""
    return RELEASES["0.6"] if tracer.beta1 else tracer.release


def released(construct: str) -> None:
    """A kernel uses something that releases differ in; outside kernels, nothing is said.

    Raises:
        CompileError: its release doesn't have it.
    """
    tracer = _tracer.get()
    if tracer is None:
        return
    if (warning := release_in_force(tracer).check(construct)) is not None:
        tracer.warn(warning)


@contextmanager
def tracing_with(tracer: Any) -> Iterator[None]:
    token = _tracer.set(tracer)
    try:
        yield
    finally:
        _tracer.reset(token)
