"""Every error and warning a user of the simulator can meet, as one family of types.

A message is always put together in the same order: the rule that was broken (with the numbers, got
and allowed), then where: instruction, core, kernel file and line; then what repairs it, unless the
first part says so; last the policy that lifts the check, if there is one. `location`, `core` and
`instruction` carry the same facts for programs, and so does `to_dict()`. An exception that a kernel
raises itself reaches the caller unchanged; only an AttributeError of an argument that was taken for
a tensor is told as such.

`code` names the kind of mistake. Whoever raises gives it, at the place where it is raised; classes
whose name already says which mistake it is have one of their own. `nki_dist.codes` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf, isfinite
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

from nki_dist import codes
from nki_dist.codes import picture
from nki_dist.ranges import shown

MOST: Final = 64  # items of a quantity that are data; of more, such as ranks, a text has ranges

_Self = TypeVar("_Self", bound="Diagnostic")


class Diagnostic(Exception):
    """What errors and warnings have in common.

    Attributes:
        message: what rule was broken, with the numbers.
        code: the kind of mistake, one of `nki_dist.codes.CODES`, such as `"psum-bank"`.
        location: `"file.py:12"` of the kernel line, or None where no line is at fault.
        core: the simulated core (an int, or a text such as `"rank 3 core 1"`), or None.
        instruction: name of the instruction, such as `"nisa.tensor_copy"`, or None.
        own_hint: what to do about this very case; "" where the message says it, None where what is
            known of the code does.
        policy: which policy of `nki.Checks` lifts the check, and how far, or None.
        numbers: the quantities of the message by name, often `got` and `allowed`, `most` or
            `least`; empty where it has none.
        picture: what `write_report` draws, as `codes.picture` describes it, or None.
    """

    default_code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        location: str | None = None,
        core: Any = None,
        instruction: str | None = None,
        hint: str | None = None,
        policy: str | None = None,
        numbers: Mapping[str, Any] | None = None,
        picture: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).default_code
        self.location = location
        self.core = core
        self.instruction = instruction
        self.own_hint = hint
        self.policy = policy
        # Plain at once: what they were taken from may not survive the trace, or pickling.
        self.numbers: dict[str, Any] = plain(numbers or {}, MOST)
        self.picture = picture

    @property
    def hint(self) -> str:
        """What to do about it, in this very case or about mistakes of this kind, and the policy."""
        remedy = self.own_hint or codes.of(self.code).hint
        return f"{remedy}; {self.policy}" if self.policy else remedy

    @property
    def aws(self) -> tuple[str, ...]:
        """Codes of AWS's compiler whose documentation describes the same mistake."""
        return codes.of(self.code).aws_for(self.instruction)

    def to_dict(self) -> dict[str, Any]:
        """The same as data that JSON can hold.

        Returns:
            A dict with `code`, `aws` (a list of codes of AWS's compiler, often empty), `type` (name
            of the class), `severity` ("error" or "warning"), `message`, `file` and `line` (a str
            and an int, or None), `core` (an int, a str or None), `instruction` (a str or None),
            `hint` (a str) and `numbers` (a dict; long lists of ranks are texts such as "[0-63]").
        """
        file, line = split_location(self.location)
        return {
            "code": self.code,
            "aws": list(self.aws),
            "type": type(self).__name__,
            "severity": "warning" if isinstance(self, Warning) else "error",
            "message": self.message,
            "file": file,
            "line": line,
            "core": plain(self.core),
            "instruction": self.instruction,
            "hint": self.hint,
            "numbers": dict(self.numbers),
        }

    def write_report(self, path: str | PathLike[str]) -> None:
        """Write one HTML file: the message, the kernel's lines, and a picture where there is one.

        Who waits for whom (`DeadlockError`, `CollectiveMismatchError`), which elements both cores
        touch (`RaceError`), what of a tensor is outside (`OutOfBoundsError`). It fetches nothing
        when it is opened. The kernel's source is read from its files now.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(picture.page(self.to_dict(), str(self), self.location, self.picture))

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
            where.append(f"on {'core ' * isinstance(self.core, int)}{self.core}")
        if self.location:
            where.append(f"at {self.location}")
        where.append(f"[{self.code}]")
        # A message of one line without a place stays one line.
        gap = "\n  " if len(where) > 1 or "\n" in self.message else " "
        remedy = codes.of(self.code).printed if self.own_hint is None else self.own_hint
        after = {"hint": remedy, "policy": self.policy}
        told = [f"\n  {name}: {text}" for name, text in after.items() if text]
        return "".join((self.message, gap, " ".join(where), *told))


def split_location(location: str | None) -> tuple[str | None, int | None]:
    """File and line of a `"file.py:12"`; None for what it doesn't say."""
    if not location:
        return None, None
    file, _, line = location.rpartition(":")
    return (file, int(line)) if file and line.isdecimal() else (location, None)


def plain(value: Any, most: float = inf) -> Any:
    """A value as JSON has it; what JSON hasn't is written as text, as are lists of more items.

    An array becomes one list, whatever its shape.
    """
    if hasattr(value, "tolist"):  # of NumPy
        value = value.reshape(-1).tolist() if value.ndim else value.item()
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if isfinite(value) else str(value)  # JSON has no NaN
    if isinstance(value, Mapping):
        return {str(key): plain(v, most) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, most) for v in value] if len(value) <= most else shown(value)
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return str(value)


class NkiError(Diagnostic):
    """Base of all errors raised on purpose by this package."""


def simulator_error(error: BaseException | None) -> NkiError | None:
    """An error of this package among an exception, its causes and what it happened during."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, NkiError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


def free_name(folder: Path, name: str) -> Path:
    """A file that isn't there yet: NAME.html, NAME-2.html, ..., of plain characters."""
    plain = re.sub(r"[^A-Za-z0-9.=-]+", "_", name).strip("._")[-150:] or "error"
    path, n = folder / f"{plain}.html", 1
    while path.exists():
        n += 1
        path = folder / f"{plain}-{n}.html"
    return path


class NkiWarning(Diagnostic, UserWarning):
    """Base of all warnings; `warnings.simplefilter("error")` makes errors of them."""

    default_code = "warning"


class UnwrittenOutputWarning(NkiWarning):
    """Elements of a tensor that the kernel returns were never stored."""

    default_code = "unwritten-rows"


class UnreturnedOutputWarning(NkiWarning):
    """The kernel stored results that it doesn't return, and did nothing else its caller sees."""

    default_code = "unreturned-output"


class SpilledWarning(NkiWarning):
    """More bytes are alive than SBUF has, in a kernel whose compiler spills: one of Beta 1."""

    default_code = "spilled"


class RaceWarning(NkiWarning):
    """What is a RaceError by default, under `races=warn`."""

    default_code = "race"


class UnresponsiveWarning(NkiWarning):
    """A process that simulates cores doesn't answer; the launch goes on waiting for it."""

    default_code = "core-silent"


class RetryWarning(NkiWarning):
    """A launch that lost a process or a node is run again."""

    default_code = "launch-again"


class UnseenErrorWarning(NkiWarning):
    """A launch in a row failed, and its world was closed before anybody asked for a value."""

    default_code = "error-unseen"


class ClusterWarning(NkiWarning):
    """A kept Ray (`nki-dist cluster`) is there, and this program can't use it."""

    default_code = "cluster-unused"


class RefusedConfigWarning(NkiWarning):
    """Some of the configurations that nki.autotune has to choose from don't compile."""

    default_code = "autotune-refused"


def as_warning(error: NkiError, kind: type[NkiWarning]) -> NkiWarning:
    """The same facts, where a policy lifts an error."""
    made = kind(error.message)
    made.__dict__.update(error.__dict__, policy=None)  # it is lifted
    return made


class CompilerMayRejectWarning(NkiWarning):
    """Runs here; AWS's compiler is reported, but not documented, to refuse it."""

    default_code = "compiler-may-reject"


class ReleaseWarning(NkiWarning, DeprecationWarning):
    """The kernel uses what a release of NKI has deprecated or removed."""

    default_code = "release-removed"


class NestedConfigWarning(NkiWarning):
    """A kernel inside another asks for another configuration, which doesn't count."""

    default_code = "nested-config"


class CompileError(NkiError):
    """The kernel can't be turned into a program: control flow, return values, Python constructs."""

    default_code = "compile"


class NkiValidationError(NkiError):
    """A documented constraint of an instruction, a tensor or an argument is violated."""

    default_code = "invalid"


def invalid(
    message: str, *, code: str, hint: str | None = None, **numbers: Any
) -> NkiValidationError:
    """The error of a constraint that is violated, with the quantities of its message by name."""
    return NkiValidationError(message, code=code, hint=hint, numbers=numbers)


class NoSuchAttribute(NkiValidationError, AttributeError):
    """A kernel asked a tensor for something that tensors don't have; `hasattr` says False."""

    default_code = "no-such-attribute"


class GridTypeError(NkiValidationError, TypeError):
    """A grid of tiles is asked for with something of another type, as AWS's page says."""

    default_code = "grid-shape"


class GridValueError(NkiValidationError, ValueError):
    """A grid of tiles is asked for with shapes that don't fit, as AWS's page says."""

    default_code = "grid-shape"


class OutOfMemoryError(NkiError):
    """SBUF, PSUM or HBM is full; says capacity, need and the largest live tensors."""

    default_code = "out-of-memory"


class OutOfBoundsError(NkiError):
    """An address or index lies outside its tensor."""

    default_code = "out-of-bounds"


class UninitializedReadError(NkiError):
    """A value that nobody wrote reached an output, an index or a register."""

    default_code = "unwritten"


class RaceError(NkiError):
    """Two accesses that nothing orders touch the same bytes and the result depends on the order."""

    default_code = "race"


class DeadlockError(NkiError):
    """No core can make progress; says who waits for what."""

    default_code = "deadlock"


class CollectiveMismatchError(NkiError):
    """Ranks disagree about the collective they take part in; names both call sites."""

    default_code = "mismatch"


class CoreLostError(NkiError):
    """The process that simulated a core died."""

    default_code = "core-lost"


class LaunchError(NkiError):
    """A launch can't be made as asked (grid, world, host, arguments)."""

    default_code = "launch"


class TensorSizeError(LaunchError, ValueError):
    """What is written to a DeviceTensor has another shape or dtype (AWS's is a ValueError)."""

    default_code = "tensor-size"


class ProgramFormatError(NkiError):
    """An encoded program is malformed, truncated or of another version."""

    default_code = "program-malformed"
