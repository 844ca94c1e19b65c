"""What is reported of a kernel, and how: the policy that a world holds it to.

Five questions have an answer each; a policy is written as an object, `Checks(races="warn")`, as
text, `"unwritten=zero,races=warn"`, or as a word for a usual one: `default`, `strict` or `spill`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

from nki_dist.errors import LaunchError
from nki_dist.release import ANY, RELEASES, Release

ALLOWED: Final = {
    "unwritten": ("error", "strict", "zero", "nan"),
    "races": ("error", "warn", "off"),
    "capacity": ("error", "spill"),
    "refusals": ("warn", "all", "off"),
    "release": tuple(RELEASES),
}
PRESETS: Final[dict[str, dict[str, str]]] = {
    "default": {},
    "strict": {"unwritten": "strict", "refusals": "all"},
    "spill": {"capacity": "spill"},
}


@dataclass(frozen=True)
class Checks:
    """What a kernel is checked against.

    Args:
        unwritten: memory that nobody wrote. "error": its values may be read but not reach an
            output, an index or a register; a returned tensor of which nothing is stored is an
            error, too, one stored in part is an UnwrittenOutputWarning. "strict": reading it is an
            error, so is a returned tensor stored in part, and so is what the documentation calls a
            limitation for now. "zero": it holds zeros. "nan": it holds NaN, in floats of 8 bits
            and integers a fixed pattern. The last two leave only warnings about returned tensors.
        races: two accesses that nothing orders and whose order matters. "error", "warn": a
            RaceWarning, "off": not looked for.
        capacity: more bytes alive than SBUF or PSUM have, in tensors without addresses. "error"
            (for SBUF of kernels of Beta 1 a SpilledWarning, unless `unwritten` is "strict"), or
            "spill": accepted, as AWS's compiler may reorder or spill.
        release: of NKI. "0.6" or "0.7": what the other has instead is an error. "any": both work,
            with a ReleaseWarning where 0.7 has removed something.
        refusals: what AWS's compiler may refuse though it runs here. "warn": one
            CompilerMayRejectWarning for a launch; of what published kernels do that ran on devices,
            nothing. "all": of that, too, with the kernel (nki_dist.codes.EVIDENCE). "off": nothing.

    Raises:
        LaunchError: another word.
    """

    unwritten: str = "error"
    races: str = "error"
    capacity: str = "error"
    release: str = ANY
    refusals: str = "warn"

    def __post_init__(self) -> None:
        for part, words in ALLOWED.items():
            if getattr(self, part) not in words:
                raise LaunchError(
                    f"check {part}={getattr(self, part)!r}; allowed: {', '.join(words)}",
                    code="check-policy",
                )

    @property
    def strict(self) -> bool:
        """Whether what published kernels do on purpose is reported, too."""
        return self.unwritten == "strict"

    @property
    def defined(self) -> bool:
        """Whether memory that nobody wrote has contents that kernels may use."""
        return self.unwritten in ("zero", "nan")

    @property
    def nki(self) -> Release:
        """The release, to be asked what it has."""
        return RELEASES[self.release]

    def against_release(self, release: str) -> Checks:
        """The same for another release, unless that is "any"."""
        return self if release in (ANY, self.release) else replace(self, release=release)

    def __str__(self) -> str:
        return ",".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self))


DEFAULT: Final = Checks()


Policy: TypeAlias = "str | Checks | Iterable[str]"


def checks_of(value: Any) -> Checks:
    """The policy that a user wrote.

    Args:
        value: a Checks, or text: words and parts such as "races=warn", separated by commas; or
            several texts in a list. What isn't mentioned is as by default.

    Raises:
        LaunchError: a word or part that there isn't, or two answers to one question.
    """
    if isinstance(value, Checks):
        return value
    several = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    answers: dict[str, str] = {}
    for text in several:
        if not isinstance(text, str):
            raise LaunchError(f"check={value!r}; {_allowed()}", code="check-policy")
        for item in text.split(","):
            for part, answer in _answers(item.strip(), value).items():
                if answers.setdefault(part, answer) != answer:
                    raise LaunchError(
                        f"check={value!r} says {part}={answers[part]} and {part}={answer}; "
                        "give one answer",
                        code="check-policy",
                    )
    return Checks(**answers)


def _answers(item: str, value: Any) -> dict[str, str]:
    part, equals, answer = (text.strip() for text in item.partition("="))
    if not equals and part in PRESETS:
        return PRESETS[part]
    if equals and part in ALLOWED and answer in ALLOWED[part]:
        return {part: answer}
    raise LaunchError(f"check={value!r}: {item!r} is unknown; {_allowed()}", code="check-policy")


def _allowed() -> str:
    parts = [f"{part}={'|'.join(words)}" for part, words in ALLOWED.items()]
    return f"allowed: {', '.join([*PRESETS, *parts])}, separated by commas, or an nki.Checks"
