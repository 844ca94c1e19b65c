"""`constructs.txt`: what published kernels consist of that only the tests beside this file have.

A line is a construct (`constructs`) and the source line of the first kernel that has it, with a tab
between them. Constructs that other tests have, too, aren't listed. To make it anew:

    pytest -p bench.real_kernels.covering --covering-to COVER tests --ignore tests/foreign
    python -m bench.real_kernels foreign NKI_REF --write COVER
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_name("constructs.txt")


def constructs() -> list[str]:
    """What the tests beside this file have to have."""
    return [line.partition("\t")[0] for line in FILE.read_text().splitlines()]


def write(found: Mapping[str, str], covered: Mapping[str, str]) -> None:
    """Make the table of constructs, each with its line, but for those that other tests have.

    Python's syntax is always for the tests here, which also ask that nothing is warned of.
    """
    own = [text for text in sorted(found) if "python: " in text or text not in covered]
    FILE.write_text("".join(f"{text}\t{found[text]}\n" for text in own))
