"""What cores say to each other, and what a core waits for.

Messages of one (source, channel) pair are taken in the order they were sent; `what` describes the
operation on the sender's side and must equal the receiver's, or the two cores run different
programs and the first difference is reported.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from nki_dist.isa import INSTRUCTIONS
from nki_dist.ranges import named, shown


class Message(NamedTuple):
    """One message.

    Attributes:
        source, target: cores, numbered over the whole world.
        channel: what it belongs to ("sendrecv pipe_id 0", "core_barrier", ...).
        sequence: count of messages sent before it from source to target on this channel.
        payload: an array, or None.
        what: description of the operation, compared on receipt.
        location: kernel line of the sender.
        number: of the operation among those of its group, compared too, if they are numbered.
    """

    source: int
    target: int
    channel: str
    sequence: int
    payload: Any
    what: dict[str, Any]
    location: str | None
    number: int | None = None


class Wait(NamedTuple):
    """A core needs a message before it can go on.

    Attributes:
        lnc: cores of a rank, to name cores by their ranks; 0 in a world of one rank.
        met: the message that came in place of the one that is meant, without its payload: the
            core can't go on.
    """

    core: int
    source: int
    channel: str
    what: dict[str, Any]
    location: str | None
    lnc: int = 0
    number: int | None = None
    met: Message | None = None

    @property
    def title(self) -> str:
        """The instruction that waits."""
        return title(self.what)

    @property
    def matched_by(self) -> str:
        """What else than partners and order says which message is meant, such as "pipe_id 0"."""
        _, _, rest = self.channel.partition(f"{self.what['op']} ")
        return rest


def told(who: str, wait: Wait, named: dict[str, Any], whom: str) -> str:
    """A wait in words.

    Args:
        who: with the verb.
        named: what is told of the operation.
    """
    # Which tensors matters where two sides disagree; here the line says it.
    texts = (f"{k} {shown(v)}" for k, v in named.items() if k != "tensors")
    text = ", ".join(filter(None, (wait.matched_by, *texts)))
    return (
        f"{who} {wait.title}"
        + (f" ({text})" if text else "")
        + f" for {whom}"
        + (f" at {wait.location}" if wait.location else "")
    )


def core_names(cores: Iterable[int], lnc: int) -> str:
    """How messages call cores of the world: "rank 3 core 0", "ranks 0-6, 9 core 1", in a world of
    one rank "core 0"; `lnc` as in Wait."""
    if not lnc:
        return named(cores, "core")
    ranks: dict[int, list[int]] = defaultdict(list)
    for core in cores:
        ranks[core % lnc].append(core // lnc)
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for n, found in sorted(ranks.items()):
        groups[tuple(found)].append(n)
    return " and ".join(f"{named(r)} {named(n, 'core')}" for r, n in groups.items())


def error_core(core: int, lnc: int) -> int | str:
    """As the attribute `core` of an error has it."""
    return core_names([core], lnc) if lnc else core


def agree(one: Message | Wait, other: Message | Wait) -> bool:
    """Whether both sides are in the same operation."""
    # Cores that were linked together often have one description: found equal without a look at it.
    same = one.what is other.what or one.what == other.what
    return same and one.number == other.number


class Mailbox(dict[tuple[int, str], "deque[Message]"]):
    """Messages that have arrived for one core and weren't taken yet, by source and channel."""

    def put(self, message: Message) -> None:
        key = (message.source, message.channel)
        queue = self.get(key)
        if queue is None:
            self[key] = deque((message,))
        elif queue and queue[-1].sequence > message.sequence:  # transports may reorder
            items = sorted([*queue, message], key=lambda m: m.sequence)
            self[key] = deque(items)
        else:
            queue.append(message)

    def take(self, wait: Wait, sequence: int) -> Message | None:
        """The message `wait` asks for, if it is there; it may be of another operation."""
        queue = self.get((wait.source, wait.channel))
        if not queue or queue[0].sequence != sequence:
            return None
        return queue.popleft()


def details(side: Message | Wait) -> dict[str, Any]:
    """What is known of its operation, by name."""
    number = {} if side.number is None else {"number": side.number}
    return {**number, **{k: v for k, v in side.what.items() if k != "op"}}


def title(what: dict[str, Any]) -> str:
    """The operation, as users call it."""
    spec = INSTRUCTIONS.get(what["op"])
    return str(what["op"]) if spec is None else spec.title
