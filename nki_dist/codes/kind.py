"""Reads `codes.txt`: what each code says of a kind of mistake, and what repairs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from nki_dist.codes.data import paragraphs

SEE = "See the message."
PAGE = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/compiler/error-codes/{}.html"


@dataclass(frozen=True)
class Code:
    """One kind of mistake.

    Attributes:
        name: what identifies it, such as `"psum-bank"`. Never changes, never means anything else.
        title: the mistake in a sentence, without numbers.
        hint: what usually repairs it.
        aws: codes of AWS's compiler whose documentation describes the same mistake.
        aws_of: further ones that describe it for one instruction, by its title.
        said: messages of this kind say by themselves what repairs them.
    """

    name: str
    title: str
    hint: str
    aws: tuple[str, ...] = ()
    aws_of: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    said: bool = False

    @property
    def printed(self) -> str:
        """What is printed below a message of this kind: the hint, unless messages say it."""
        return "" if self.said or self.hint == SEE else self.hint

    def aws_for(self, instruction: str | None) -> tuple[str, ...]:
        """AWS's codes for this mistake in an instruction, the particular ones first."""
        return (*self.aws_of.get(instruction or "", ()), *self.aws)


def sections() -> dict[str, tuple[Code, ...]]:
    """The codes of each section of the page, in its order."""
    found: dict[str, tuple[Code, ...]] = {}
    title = ""
    for lines in paragraphs("codes.txt"):
        if lines[0].startswith("== "):
            title = lines[0].strip("= ")
        else:
            found[title] = (*found.get(title, ()), _code(*lines))
    return found


def _code(name: str, title: str, hint: str, *more: str) -> Code:
    aws: dict[str, tuple[str, ...]] = {}
    for line in more:
        key, _, codes = line.partition(":")
        aws[key.removeprefix("aws").strip()] = tuple(codes.split())
    said = aws.pop("said", None) is not None
    return Code(name, title, hint, aws.pop("", ()), MappingProxyType(aws), said)


def address(aws: str) -> str:
    """Address of AWS's page about one of its codes, `"NCC_EVRF004"`."""
    return PAGE.format(aws.removeprefix("NCC_"))
