"""Programs as they travel to actors: in the call if they are small, else as plasma objects."""

from __future__ import annotations

from typing import Any, Final

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.encode import encode
from nki_dist.hbm.plasma import put_bytes

INLINE: Final = 64 << 10  # bytes up to which a program is part of the call


class Encoded:
    """The encoded program of the last kernel; actors keep what they decoded, so one is enough."""

    def __init__(self) -> None:
        self._key: Any = None
        self._code: list[Any] = []

    def of(self, key: Any, compiled: Compiled) -> list[Any]:
        """Per core of a rank its program: bytes, or a one-element list with a plasma reference."""
        if key != self._key:
            code = [encode(program) for program in compiled.programs]
            self._code = [[put_bytes(data)] if len(data) > INLINE else data for data in code]
            self._key = key
        return self._code
