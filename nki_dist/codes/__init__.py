"""What a mistake is called: one code for each kind of error or warning, and what repairs it.

Names, not numbers: a name is read where an error is raised, in a log and in a list of exceptions,
without looking it up (mypy and Pylint have the same; Ruff and clippy went there from numbers). A
code is of the mistake, not of the place that finds it: all instructions that are given a tile in
the wrong memory say `memory-kind`. Two mistakes that are repaired in different ways have two codes.

A code that was published stays: it isn't renamed, and isn't used again for something else. What
isn't raised any longer moves to RETIRED, with what replaces it. A new code is a paragraph of
`codes.txt`. `tests/test_codes.py` looks at every place that raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nki_dist.codes.evidence import EVIDENCE, Evidence
from nki_dist.codes.kind import SEE, Code, address, sections

SECTIONS: Final[Mapping[str, tuple[Code, ...]]] = MappingProxyType(sections())
CODES: Final[Mapping[str, Code]] = MappingProxyType(
    {code.name: code for section in SECTIONS.values() for code in section}
)
# Code that was used once -> what says it now.
RETIRED: Final[Mapping[str, str]] = MappingProxyType({"mask-empty": "mask-shape"})


def of(name: str) -> Code:
    """What is known of a code; other packages may raise our errors with codes of their own."""
    return CODES.get(name) or Code(name, "Not one of nki_dist's codes.", SEE)


__all__ = ["CODES", "EVIDENCE", "RETIRED", "SECTIONS", "Code", "Evidence", "address", "of"]
