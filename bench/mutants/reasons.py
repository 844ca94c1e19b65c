"""Why mutants survive, by file (or "", anywhere), line before and line after."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final


def _read() -> Iterator[tuple[tuple[str, str, str], str]]:
    _, *paragraphs = Path(__file__).with_suffix(".txt").read_text().strip().split("\n\n")
    for paragraph in paragraphs:
        file, before, after, why = paragraph.splitlines()
        yield (file.replace("anywhere", ""), before, after), why


REASONS: Final[Mapping[tuple[str, str, str], str]] = dict(_read())
