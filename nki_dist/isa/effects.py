"""What an instruction does besides computing results: what passes and simulated time must know.

Every instruction declares all of it in its own file; nothing has a default, so that a new one can't
be forgotten in some table elsewhere. `tests/isa/effects` holds each declaration against what the
instruction does when it runs.

How an instruction passes on elements that nobody wrote is a rule: it gets masks of the operands
(True where the value depends on unwritten memory) and gives masks of the results. The rules that
several instructions share are here. Where what happens depends on data, or nobody has looked
closely, the rule is `OPTIMISTIC`: the results count as clean, so that correct kernels are never
refused. The values themselves are still poison when the program runs; only the report is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from nki_dist.arch import Arch
from nki_dist.isa.enums import reduce_cmd
from nki_dist.program import Access, Instruction
from nki_dist.program.walk import operands

Mask: TypeAlias = "np.ndarray | None"
MaskOf: TypeAlias = "Callable[[Access], Mask]"
Results: TypeAlias = "dict[str, Mask]"


class Unwritten(NamedTuple):
    """A rule, and the parameters whose elements count."""

    rule: Callable[[Instruction, tuple[str, ...], MaskOf], Results]
    sources: tuple[str, ...]

    def results(self, i: Instruction, mask_of: MaskOf) -> Results:
        """Masks of the results by parameter; a parameter left out is clean."""
        return self.rule(i, self.sources, mask_of)


def passes_on(
    rule: Callable[[Instruction, tuple[str, ...], MaskOf], Results],
) -> Callable[[str], Unwritten]:
    """Make `rule("data1 data2")` the rule for these parameters."""
    return lambda sources: Unwritten(rule, tuple(sources.split()))


def of_one(rule: Callable[[Instruction, np.ndarray], Mask]) -> Callable[[str], Unwritten]:
    """The same of `rule(i, marks)`, where dst alone depends on one parameter alone."""

    def results(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
        m = mask_of(i.args[sources[0]])
        return {} if m is None else {"dst": rule(i, m)}

    return passes_on(results)


class State(Enum):
    """State outside tensors and registers that makes two instructions depend on each other."""

    SUMS = "accumulator"  # the engine's accumulator registers, unless it leaves them alone
    RANDOM = "random"  # one for all engines: seeding may reach several
    PRINTED = "print"  # the order of what the driver sees


@dataclass(frozen=True)
class Bits:
    """Operands among which bits move; see `copies`, `moves` and `EXCHANGED`.

    Attributes:
        names: parameters; none for all.
        converts: operands of different types are converted; otherwise they need one type.
        exchanged: what one core sends another receives, in whichever of its tensors.
        when: in which instructions bits move.
        pads: in which of them 8-bit elements move to 16-bit places, which then hold no numbers.
    """

    names: tuple[str, ...]
    converts: bool = False
    exchanged: bool = False
    when: Callable[[Instruction], bool] = lambda i: True
    pads: Callable[[Instruction], bool] = lambda i: False


def copies(names: str) -> Bits:
    """Bits move among operands of equal types; others are converted."""
    return Bits(tuple(names.split()), converts=True)


def moves(names: str) -> Bits:
    """Bits move, or values are found again, so that the operands need one type."""
    return Bits(tuple(names.split()))


EXCHANGED: Final = Bits((), exchanged=True)  # all operands travel between cores


@dataclass(frozen=True)
class Effects:
    """What every instruction declares.

    Attributes:
        unwritten: how it passes on elements that nobody wrote.
        partial: it may leave elements of a destination as they were, by data or attributes. What
            `oob_mode.skip` leaves alone isn't meant: that is known of every instruction.
        whole: in which instructions of a partial kind attributes say that nothing is left.
        bits: the operands among which bits move, or None if all results are computed.
        state: what it changes or depends on besides tensors and registers, or None.
    """

    unwritten: Unwritten
    partial: bool
    bits: Bits | None
    state: State | None
    whole: Callable[[Instruction], bool] = lambda i: False

    def keeps(self, i: Instruction) -> bool:
        """Whether `i` may leave elements of a destination as they were."""
        return self.partial and not self.whole(i)

    @property
    def copies(self) -> bool:
        """Whether its destination's elements are those of its source, converted at most."""
        if self.bits is None or not self.bits.converts:
            return False
        return {*self.bits.names} == {"dst", *self.unwritten.sources}

    @property
    def by_element(self) -> bool:
        """Whether each result is known to depend on the elements in its place alone, or on none."""
        return self.unwritten.rule in (_ELEMENTWISE, CLEAN.rule)

    def states(self, i: Instruction) -> list[tuple[str, str]]:
        """The state that an instruction touches: equal for those that depend on each other."""
        if self.state is State.SUMS:
            idle = i.args.get("reduce_cmd") is reduce_cmd.idle and i.args["reduce_res"] is None
            return [] if idle else [(self.state.value, i.engine)]
        return [] if self.state is None else [(self.state.value, "")]

    def parameters(self) -> set[str]:
        """Every parameter that is named."""
        return {*self.unwritten.sources, *(self.bits.names if self.bits is not None else ())}


@dataclass(frozen=True)
class Exchange:
    """Messages of one instruction.

    Attributes:
        channel: messages of one channel between two cores are matched in order.
        sends, receives: cores, numbered over the rank or, in a replay, over the launch.
        busy_ns: time its own engine works, whatever the others do.
        latency_ns: from its start to a message's arrival.
        meets: cores that wait for each other, the own one included, instead of messages: all are
            over `latency_ns` after the last has started. Rendezvous of one channel and the same
            cores are matched in order.
    """

    channel: str
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    busy_ns: float
    latency_ns: float
    meets: tuple[int, ...] = ()


@dataclass(frozen=True)
class Meets:
    """How an instruction that waits for other cores meets them.

    Attributes:
        orders: `orders(i, core)`: whether `core` (0 or 1) meets the other core of its rank. The
            check of races counts these: what the cores do between the same two isn't ordered.
        waits: `waits(i, core)`: whether `core` surely waits for the other core of its rank, on
            every rank. For the check of races `orders` counts more, in the kernel's favour.
        hands: the shared tensor whose accesses it alone orders; None: of all.
        channel: equal for instructions of different cores that may be each other's ends.
        figures: fields of the architecture, separated by spaces, that its simulated time rests on.
        time: `time(i, core, cores, arch)`: the messages of `core`, one of the rank's `cores`, in
            simulated time; None for collectives, where they depend on the topology.
    """

    orders: Callable[[Instruction, int], bool]
    waits: Callable[[Instruction, int], bool]
    channel: Callable[[Instruction], Hashable]
    figures: str
    time: Callable[[Instruction, int, int, Arch], Exchange] | None
    hands: Callable[[Instruction], Access | None] = lambda i: None


# ---- rules for unwritten elements ---------------------------------------------------------------


def flattened(m: np.ndarray) -> np.ndarray:
    """(partitions, elements per partition)."""
    return m.reshape(m.shape[0], -1)


def union(m: np.ndarray, axis: int) -> np.ndarray:
    """Where any element along an axis is marked."""
    return np.logical_or.reduce(m, axis=axis)


def tile_of(i: Instruction) -> tuple[int, int]:
    """Partitions and elements per partition of the result."""
    a = i.args["dst"]
    return a.shape[0], a.free_size


def _joined(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Mask:
    """Union of the sources over (partitions, elements); one element per partition broadcasts."""
    total: Mask = None
    shape = tile_of(i)
    for _, a in operands({name: i.args[name] for name in sources}):
        m = mask_of(a)
        if m is None:
            continue
        m = flattened(m)
        if m.size == shape[0] * shape[1]:
            m = m.reshape(shape)
        elif m.shape[0] not in (1, shape[0]) or m.shape[1] not in (1, shape[1]):
            continue  # a form this rule doesn't know
        total = np.broadcast_to(m, shape) if total is None else np.logical_or(total, m)
    return total


# Results don't depend on any element of a tensor; they do, and it isn't followed.
CLEAN: Final = Unwritten(lambda i, sources, mask_of: {}, ())
OPTIMISTIC: Final = Unwritten(lambda i, sources, mask_of: {}, ())

# Of instructions that only compute what they write, from no tensor whose elements are followed.
NOTHING_ELSE: Final = Effects(CLEAN, partial=False, bits=None, state=None)


@passes_on
def elementwise(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Each element depends on those in its place, what is reduced along the way on their row."""
    m = _joined(i, sources, mask_of)
    found: Results = {"dst": m}
    reduced = i.args.get("reduce_cmd") not in (reduce_cmd.idle, reduce_cmd.reset)
    if m is not None and i.args.get("reduce_res") is not None and reduced:
        found["reduce_res"] = union(m, 1)[:, None]
    return found


@passes_on
def scan(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Every result depends on its place and those before it."""
    m = _joined(i, sources, mask_of)
    return {} if m is None else {"dst": np.logical_or.accumulate(m, axis=1)}


_ELEMENTWISE: Final = elementwise("").rule
