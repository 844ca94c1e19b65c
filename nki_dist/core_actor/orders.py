"""What a launcher and the processes of its cores tell each other: orders, answers, and where they
stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_dist.hbm.arena import ArenaHandle
from nki_dist.hbm.contents import Places
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.messages import Wait
from nki_dist.runtime.overdue import Position


@dataclass(frozen=True)
class Order:
    """What an actor needs to run a launch.

    Attributes:
        launch: number of the launch in its world.
        key: names the program.
        code: (encoded program per core of a rank, stack layout), or None if it was sent before.
            Encoded programs are bytes or a one-element list with a plasma reference.
        arena: where the HBM stacks of its ranks are, or None if the actor has mapped it before.
        places: of tensors that stay in HBM.
        regions: that they lie in, by number, if the actor hasn't mapped them before.
        then: orders that follow it at once, of what the actor knows, if it doesn't fail; see `row`.
    """

    launch: int
    key: Any
    code: tuple[list[Any], dict[tuple[str, int], int]] | None = None
    arena: ArenaHandle | None = None
    places: Places = ()
    regions: Mapping[int, ArenaHandle] = field(default_factory=dict)
    then: tuple[Order, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether it has no references to plasma objects, which only Ray can send."""
        return self.code is None and self.arena is None and not self.regions


@dataclass(frozen=True)
class Unmap:
    """What an actor has mapped and lets go of: regions by number. Nobody waits for an answer."""

    regions: Sequence[int]


@dataclass(frozen=True)
class Status:
    """Where an actor stands; replaced as a whole, so readers see a consistent one.

    Attributes:
        state: "running", "parked" (nothing can go on without a message) or "done".
        sent: messages to other processes in this launch.
        taken: messages from other processes that the cores have been given.
        arrived: messages from other processes that are here; at least `taken`.
        progress: instructions done and cores finished.
        running: where the core is whose turn it is, while the state is "running".
    """

    launch: int = -1
    state: str = "done"
    sent: int = 0
    taken: int = 0
    arrived: int = 0
    waits: tuple[Wait, ...] = ()
    finished: tuple[int, ...] = ()
    progress: tuple[int, int] = (0, 0)
    running: tuple[Position, ...] = ()


@dataclass
class Answer:
    """What `run` returns: reports, or the error that ended it, or a request for the program.

    Attributes:
        sent: messages to other processes.
        message_memory: bytes of shared memory that the process keeps for what it sends.
        lends_stacks: whether other processes have its stacks mapped.
        then: of the launches that followed, up to the first that wasn't carried out.
        by_call: this is only word, by mailbox, that the answer comes as the result of the actor
            call that serves by this name.
    """

    launch: int
    reports: list[CoreReport] = field(default_factory=list)
    printed: list[tuple[int, str, np.ndarray]] = field(default_factory=list)
    error: BaseException | None = None
    cancelled: bool = False
    unknown_program: bool = False
    sent: int = 0
    message_memory: int = 0
    lends_stacks: bool = False
    then: list[Answer] = field(default_factory=list)
    by_call: str = ""
