"""Reads files that people write: paragraphs of lines, and comments that begin with #."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def paragraphs(file: str) -> Iterator[list[str]]:
    """The lines of each paragraph."""
    text = Path(__file__).with_name(file).read_text("utf-8")
    for paragraph in text.split("\n\n"):
        lines = [line for line in paragraph.splitlines() if not line.startswith("#")]
        if lines:
            yield lines
