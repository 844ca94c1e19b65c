"""What checking a kernel found: `Report`, one `Result` for each case and number of cores.

Invariant: `to_dict` is plain data that every JSON reader accepts; numbers that JSON doesn't have
(NaN, infinity) are text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from textwrap import indent
from typing import Any, Final

from nki_dist.compiler.locations import Locations
from nki_dist.errors import Diagnostic, plain

_SHOWN: Final = 6  # further cases named for a kind of failure
_ROWS: Final = 24  # rows of the table
_NOT_PLAIN: Final = ("failures", "differences", "source")


@dataclass(frozen=True)
class Limits:
    """How much a kernel may use.

    Args:
        time_us: simulated microseconds, `Profile.total_us`.
        sbuf_bytes: bytes per partition alive in SBUF at once, on any core.
        psum_bytes: the same of PSUM.
        hbm_bytes: of a rank's HBM, apart from its inputs: outputs, other shared tensors, and what
            is alive at once of its cores' private tensors.
    """

    time_us: float | None = None
    sbuf_bytes: int | None = None
    psum_bytes: int | None = None
    hbm_bytes: int | None = None


@dataclass(frozen=True)
class Failure:
    """One thing that is wrong with a kernel.

    Attributes:
        code: the kind: `wrong-value`, `wrong-shape`, `wrong-dtype`, `wrong-structure`,
            `never-stored`, `input-changed`, `not-repeatable`, `program-varies`, `too-slow`,
            `too-much-memory`, `timeout`, `raised` (an exception of the kernel's own), or the code
            of what the simulator raised.
        type: name of the exception's class, or `Failure`.
        message: what is wrong, with numbers.
        file, line: of the kernel, where a line is known to be at fault.
        core: the simulated core, where known.
        instruction: its name, where known.
        hint: what to do.
        numbers: the quantities of the message, by name.
        aws: codes of AWS's compiler for the same mistake.
    """

    code: str
    message: str
    hint: str | None = None
    type: str = "Failure"
    file: str | None = None
    line: int | None = None
    core: Any = None
    instruction: str | None = None
    numbers: dict[str, Any] | None = None
    aws: tuple[str, ...] = ()

    @classmethod
    def raised(cls, error: BaseException) -> Failure:
        """What an exception from tracing or running the kernel says."""
        kind = type(error).__name__
        if isinstance(error, Diagnostic):
            told = error.to_dict()
            del told["severity"]
            return cls(**{**told, "aws": tuple(told["aws"]), "core": error.core})
        text = f"{kind}: {error}" if str(error) else kind
        return cls("raised", text, type=kind).at(Locations().raised(error))

    def at(self, location: str | None) -> Failure:
        """The same with its place, `file:line`, if that is known."""
        file, _, line = (location or "").rpartition(":")
        return replace(self, file=file or None, line=int(line) if line else None)

    def to_dict(self) -> dict[str, Any]:
        """The same as data that JSON can hold, with the keys of `NkiError.to_dict`."""
        return {**plain(asdict(self)), "severity": "error", "numbers": plain(self.numbers or {})}

    def __str__(self) -> str:
        where = [f"in {self.instruction}"] if self.instruction else []
        if self.core is not None:
            where.append(f"on core {self.core}" if isinstance(self.core, int) else str(self.core))
        if self.file:
            where.append(f"at {self.file}:{self.line}")
        kind = "" if self.type == "Failure" or self.message.startswith(self.type) else self.type
        parts = [f"[{self.code}] {kind + ': ' if kind else ''}{self.message}", " ".join(where)]
        parts.append(f"hint: {self.hint}" if self.hint else "")
        return "\n  ".join(part for part in parts if part)


@dataclass(frozen=True)
class Difference:
    """How far an output is from the reference's, at its worst element.

    Attributes:
        output: which one: `output`, `output[1]`, `argument cache`.
        index: of the element whose error is largest, compared with what is allowed there.
        got, wanted: its values.
        abs_error, rel_error: the largest of all elements, separately.
        share: of the allowed error that the worst element has; above 1 is wrong.
        wrong: how many elements are.
        elements: how many were compared.
    """

    output: str
    index: tuple[int, ...]
    got: float
    wanted: float
    abs_error: float
    rel_error: float
    share: float
    wrong: int
    elements: int


@dataclass(frozen=True)
class Result:
    """One case on one number of cores.

    Attributes:
        case: its description: name, shapes and arguments.
        data: distribution and seed of what was made; empty where nothing was.
        lnc: physical cores per rank.
        failures: what is wrong; none if it is right.
        differences: of each output, the worst first.
        time_us: simulated; None if it didn't run.
        sbuf_bytes, psum_bytes: per partition alive at once, the largest of all cores.
        hbm_bytes: as of Limits.
        warnings: that compiling and running brought, as dicts.
        source: the case; `result.source.inputs()` makes its arguments again.
        unchecked: why values weren't compared, or None.
    """

    case: str
    data: str
    lnc: int
    failures: tuple[Failure, ...] = ()
    differences: tuple[Difference, ...] = ()
    time_us: float | None = None
    sbuf_bytes: int | None = None
    psum_bytes: int | None = None
    hbm_bytes: int | None = None
    warnings: tuple[dict[str, Any], ...] = ()
    source: Any = field(default=None, repr=False, compare=False)
    unchecked: str | None = None

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def worst(self) -> Difference | None:
        """The output that is nearest to, or farthest beyond, what is allowed."""
        return self.differences[0] if self.differences else None

    @property
    def badness(self) -> float:
        """For sorting: results that failed first, then by their share of the allowed error."""
        share = self.worst.share if self.worst is not None else 0.0
        return (1e300 if self.failures else 0.0) + min(share, 1e290)

    def to_dict(self) -> dict[str, Any]:
        """The same as data that JSON can hold."""
        fields = {k: v for k, v in self.__dict__.items() if k not in _NOT_PLAIN}
        return {
            "ok": self.ok,
            **plain(fields),
            "failures": [f.to_dict() for f in self.failures],
            "differences": [plain(asdict(d)) for d in self.differences],
        }


@dataclass(frozen=True)
class Report:
    """All that was found of a kernel; `print(report)` shows a table, the worst first.

    Attributes:
        kernel: its name.
        platform: it was run for.
        results: in the order in which they were run.
    """

    kernel: str
    platform: str
    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return all(result.ok for result in self.results)

    @property
    def failures(self) -> list[Failure]:
        """Of all results."""
        return [failure for result in self.results for failure in result.failures]

    def raise_if_failed(self) -> None:
        """Raise CheckFailed unless all is right."""
        __tracebackhide__ = True
        if not self.ok:
            raise CheckFailed(self)

    def to_dict(self) -> dict[str, Any]:
        """The same as data that JSON can hold."""
        return {
            "kernel": self.kernel,
            "platform": self.platform,
            "ok": self.ok,
            "results": [result.to_dict() for result in self.results],
        }

    def to_json(self) -> str:
        """`to_dict()` as text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def __str__(self) -> str:
        wrong = sum(not r.ok for r in self.results)
        unchecked = [r.unchecked for r in self.results if r.ok and r.unchecked]
        verdict = f"{wrong} of {len(self.results)} wrong" if wrong else "right"
        if unchecked:
            several = f"{len(unchecked)} of {len(self.results)} unchecked ({unchecked[0]})"
            verdict = f"{verdict}, {several}" if wrong else several
        head = f"{self.kernel} on {self.platform}: {verdict}"
        parts = [head, _table(self.results), *_told(self.results), *_warned(self.results)]
        return "\n\n".join(parts)


class CheckFailed(AssertionError):
    """A kernel isn't what its reference says; `report` has the details."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.report,)


_HEAD: Final = (
    *("", "sets", "abs error", "rel error", "of allowed", "time us"),
    *("SBUF", "PSUM", "HBM", "lnc", "case"),
)


def _table(results: Sequence[Result]) -> str:
    """A row for each case and number of cores, with the worst of its sets of data."""
    groups: dict[tuple[str, int], list[Result]] = {}
    for r in results:
        groups.setdefault((r.case, r.lnc), []).append(r)
    ranked = sorted(groups.values(), key=lambda group: -max(r.badness for r in group))
    rows = [_HEAD, *map(_row, ranked[:_ROWS])]
    widths = [max(map(len, column)) for column in list(zip(*rows))[:-1]]
    lines = []
    for verdict, *cells, case in rows:
        aligned = [text.rjust(width) for text, width in zip(cells, widths[1:])]
        lines.append("  ".join([verdict.ljust(widths[0]), *aligned, case]).rstrip())
    if len(ranked) > _ROWS:
        lines.append(f"... {len(ranked) - _ROWS} more, none of them worse")
    return "\n".join(lines)


def _row(group: list[Result]) -> tuple[str, ...]:
    worst = max(group, key=lambda r: r.badness)
    wrong = sum(not r.ok for r in group)
    d = worst.worst
    cells = ["", "", ""]
    if d is not None:
        share = f"{d.share:.0%}" if d.share < 100 else f"{d.share:.0e}x"
        cells = [f"{d.abs_error:.2g}", f"{d.rel_error:.2g}", share]
    times = [r.time_us for r in group if r.time_us is not None]
    cells.append(f"{max(times):,.2f}" if times else "")
    cells += [
        "" if n is None else f"{n:,}" for n in (worst.sbuf_bytes, worst.psum_bytes, worst.hbm_bytes)
    ]
    sets = f"{wrong} of {len(group)}" if wrong else str(len(group))
    verdict = "unchecked" if any(r.unchecked for r in group) else "ok"
    return ("WRONG" if wrong else verdict, sets, *cells, str(worst.lnc), worst.case)


def _told(results: Sequence[Result]) -> list[str]:
    """Each kind of failure once: the worst of them, and where else it was seen."""
    found: dict[tuple[str, str], list[tuple[Result, Failure]]] = {}
    for r in results:
        for f in r.failures:
            found.setdefault((f.code, f.type), []).append((r, f))
    told = []
    for same in found.values():
        r, failure = max(same, key=lambda pair: pair[0].badness)
        text = f"{_place(r)} {r.data}".rstrip() + "\n" + indent(str(failure), "  ")
        others = [p for p in dict.fromkeys(_place(other) for other, _ in same) if p != _place(r)]
        if others:
            more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
            text += f"\n  likewise: {'; '.join(others[:_SHOWN])}{more}"
        told.append(text)
    return told


def _warned(results: Sequence[Result]) -> list[str]:
    """Each warning once."""
    texts = {f"{w['type']}: {w['message']}" for r in results for w in r.warnings}
    return sorted(texts)


def _place(r: Result) -> str:
    return f"{r.case} lnc={r.lnc}".lstrip()
