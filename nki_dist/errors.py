"""Every error and warning a user of the simulator can meet, as one family of types.

A message is always put together in the same order: the rule that was broken (with the numbers, got
and allowed), then where: instruction, core, kernel file and line. `location`, `core` and
`instruction` carry the same facts for programs. An exception that a kernel raises itself is never
wrapped: it reaches the caller unchanged.
"""

from __future__ import annotations

from typing import Any, TypeVar

_Self = TypeVar("_Self", bound="Diagnostic")


class Diagnostic(Exception):
    """What errors and warnings have in common.

    Attributes:
        message: what rule was broken, with the numbers.
        location: `"file.py:12"` of the kernel line, or None where no line is at fault.
        core: the simulated core (an int, or a text such as `"rank 3 core 1"`), or None.
        instruction: name of the instruction, such as `"nisa.tensor_copy"`, or None.
        hint: what to do about it, where the message doesn't say, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        location: str | None = None,
        core: Any = None,
        instruction: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.location = location
        self.core = core
        self.instruction = instruction
        self.hint = hint

    def at(
        self: _Self,
        *,
        location: str | None = None,
        core: Any = None,
        instruction: str | None = None,
    ) -> _Self:
        """Fill in where it happened, keeping what is already known; returns self."""
        self.location = self.location or location
        self.core = self.core if self.core is not None else core
        self.instruction = self.instruction or instruction
        return self

    def __str__(self) -> str:
        where = []
        if self.instruction:
            where.append(f"in {self.instruction}")
        if self.core is not None:
            label = f"core {self.core}" if isinstance(self.core, int) else self.core
            where.append(f"on {label}")
        if self.location:
            where.append(f"at {self.location}")
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return self.message + ("\n  " + " ".join(where) if where else "") + hint

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions with keyword-only arguments don't survive pickling by default, and ours travel
        # from actors to the caller.
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(cls: type[Diagnostic], args: tuple[Any, ...], state: dict[str, Any]) -> Diagnostic:
    made = cls(*args)
    made.__dict__.update(state)
    return made


class NkiError(Diagnostic):
    """Base of all errors raised on purpose by this package."""


class NkiWarning(Diagnostic, UserWarning):
    """Base of all warnings; `warnings.simplefilter("error")` makes errors of them."""


class UnwrittenOutputWarning(NkiWarning):
    """Elements of a tensor that the kernel returns were never stored."""


class UnreturnedOutputWarning(NkiWarning):
    """The kernel stored results that it doesn't return, and did nothing else its caller sees."""


class RaceWarning(NkiWarning):
    """What is a RaceError by default, under `races=warn`."""


def as_warning(error: NkiError, kind: type[NkiWarning]) -> NkiWarning:
    """The same facts, where a policy lifts an error."""
    made = kind(error.message)
    made.__dict__.update(error.__dict__, hint=None)  # the hint says how to lift it
    return made


class CompilerMayRejectWarning(NkiWarning):
    """Runs here; AWS's compiler is reported, but not documented, to refuse it."""


class CompileError(NkiError):
    """The kernel can't be turned into a program: control flow, return values, Python constructs."""


class NkiValidationError(NkiError):
    """A documented constraint of an instruction, a tensor or an argument is violated."""


class NoSuchAttribute(NkiValidationError, AttributeError):
    """A kernel asked a tensor for something that tensors don't have; `hasattr` says False."""


class OutOfMemoryError(NkiError):
    """SBUF, PSUM or HBM is full; says capacity, need and the largest live tensors."""


class OutOfBoundsError(NkiError):
    """An address or index lies outside its tensor."""


class UninitializedReadError(NkiError):
    """A value that nobody wrote reached an output, an index or a register."""


class RaceError(NkiError):
    """Two accesses that nothing orders touch the same bytes and the result depends on the order."""


class DeadlockError(NkiError):
    """No core can make progress; says who waits for what."""


class CollectiveMismatchError(NkiError):
    """Ranks disagree about the collective they take part in; names both call sites."""


class CoreLostError(NkiError):
    """The process that simulated a core died."""


class LaunchError(NkiError):
    """A launch can't be made as asked (grid, world, host, arguments)."""


class ProgramFormatError(NkiError):
    """An encoded program is malformed, truncated or of another version."""
