"""What a world on Ray remembers of the launch under way, and of its processes in between."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.encode import encode
from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.layout import Layout
from nki_dist.hbm.plasma import put_bytes
from nki_dist.runtime.hosts import Launch

INLINE: Final = 64 << 10  # bytes up to which a program is part of the call
MUCH: Final = 64 << 20  # bytes of messages that are given back when stacks grow


@dataclass(frozen=True)
class Job:
    """A launch under way: its number, and where its tensors are."""

    number: int
    launch: Launch
    layout: Layout
    arenas: Mapping[int, ArenaHandle]

    @property
    def key(self) -> Any:
        """Names the program together with its layout."""
        return self.launch.key, self.layout.common, self.launch.resident


class MessageMemory:
    """Shared memory that processes keep for what they send, and the name it goes with.

    Attributes:
        token: names this set of processes, whose memory is empty when it gets the name.
    """

    def __init__(self) -> None:
        self.token = ""
        self._by_process: dict[int, int] = {}
        self._lent = False

    def note(self, process: int, nbytes: int, lends_stacks: bool) -> None:
        """What a process has kept after a launch, and whether others have its stacks mapped."""
        self._by_process[process] = nbytes
        self._lent |= lends_stacks

    @property
    def nbytes(self) -> int:
        """Of all processes."""
        return sum(self._by_process.values())

    @property
    def in_the_way(self) -> bool:
        """Whether stacks that grow need it, or would leave the old ones behind."""
        return self._lent or self.nbytes > MUCH

    def renamed(self) -> str:
        """The set of processes begins anew, under another token."""
        self._by_process.clear()
        self._lent = False
        self.token = uuid.uuid4().hex
        return self.token


class Encoded:
    """Of the last kernel, the program as it travels to actors: they keep what they decoded.

    It is in the call if it is small, else a plasma object.
    """

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
