"""Notes what AWS's compiler is taken to change in a program, which its simulated time follows."""

from __future__ import annotations

from dataclasses import dataclass, field

from nki_dist.isa.spec import Cost
from nki_dist.program import Instruction


@dataclass(frozen=True)
class Change:
    """What AWS's compiler is taken to change at one kernel line, over all cores.

    Attributes:
        location: `file:line`.
        what: "zeroing dropped", "repetition dropped", "copy dropped", "broadcast by a product",
            "tiles merged", "tiles split", "spilled" or "reloaded".
        count: how many instructions; of spills, how many pieces of tensors.
        bytes: that move for it, or that needn't move.
    """

    location: str
    what: str
    count: int
    bytes: int


@dataclass
class Plan:
    """How a core's order graph is replayed.

    Attributes:
        reorders: queues take what is ready; otherwise in the order written.
        look_ahead: how many instructions an engine may issue out of turn, 0 for any number; Tensor
            always has any number.
        dropped: positions that take no time and no queue.
        after: positions that a dropped one waits for besides, as its result is theirs.
        same: storages whose contents are those of another, and take no room.
        recast: by ordinal, instructions that another engine executes than the kernel's.
        products: by ordinal, what Tensor's products in place of transfers cost; also in `recast`.
        in_psum: storages in SBUF that the compiler has in PSUM.
        renewed: (storage, first byte of its piece, position) of the first access after a reload ->
            bytes that went to HBM after the access before.
        starts: by ordinal, how often an instruction begins, if not once: merged with others of its
            line, or split.
        notes: (location number, what) -> count and bytes.
    """

    reorders: bool = False
    look_ahead: int = 0
    dropped: set[int] = field(default_factory=set)
    after: dict[int, int] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    recast: dict[int, Instruction] = field(default_factory=dict)
    products: dict[int, Cost] = field(default_factory=dict)
    in_psum: set[int] = field(default_factory=set)
    renewed: dict[tuple[int, int, int], int] = field(default_factory=dict)
    starts: dict[int, float] = field(default_factory=dict)
    notes: dict[tuple[int, str], list[int]] = field(default_factory=dict)

    @property
    def close(self) -> bool:
        """Whether the compiler keeps close to the kernel's lines, as it does after Beta 1."""
        return self.look_ahead > 0

    def note(self, location: int, what: str, size: int = 0) -> None:
        """A pass changed something at a location of the program."""
        entry = self.notes.setdefault((location, what), [0, 0])
        entry[0] += 1
        entry[1] += size
