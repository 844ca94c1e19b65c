"""Why mutants survive, by file, line before and line after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REASONS: Final[Mapping[tuple[str, str, str], str]] = {}
