"""What instructions may know of the core that runs them besides tensors.

Three ideas: where the core sits (`CoreSlot`, a value), what it keeps between instructions
(`CoreState`, as new at every launch), and how it reaches others (`Wires`, connected by a launch).
`runtime.cores` puts them together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np


@dataclass(frozen=True)
class CoreSlot:
    """A core of a world.

    Attributes:
        core: number over all ranks.
        rank: its logical core.
        lnc_core: number within the rank, and in the launch grid.
        cores: of the rank.
        ranks: of the world.
        ranks_per_node: how many ranks NeuronLink connects; 0 means as in one instance.
        algorithm: name of the one that collectives must use; "" leaves it to them.
        lnc: cores of a rank, where messages name cores by their ranks; 0 in a world of one rank.
    """

    core: int = 0
    rank: int = 0
    lnc_core: int = 0
    cores: int = 1
    ranks: int = 1
    ranks_per_node: int = 0
    algorithm: str = ""
    lnc: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lnc", self.cores if self.ranks > 1 else 0)

    @property
    def name(self) -> int | str:
        """How messages call this core: by number, or with its rank where there are several."""
        return self.lnc_core if self.ranks == 1 else self.title

    @property
    def title(self) -> str:
        """The same in words."""
        return f"rank {self.rank} " * (self.ranks > 1) + f"core {self.lnc_core}"

    def peer(self, core: int) -> int:
        """World number of a core of this rank."""
        return self.rank * self.cores + core


Ordering: TypeAlias = "tuple[bool, tuple[str, int] | None]"
"""Whether a synchronisation orders accesses of the rank's cores, and the tensor to which alone."""


class Epochs:
    """How often a core has met the other one of its rank; between two, nothing orders what they do.

    Each rendezvous orders accesses to all shared tensors, or to one, given by (role, index).
    """

    __slots__ = ("_by_tensor", "everywhere")

    def __init__(self) -> None:
        self.everywhere = 0
        self._by_tensor: dict[tuple[str, int], int] = {}

    def reset(self) -> None:
        """A launch begins."""
        self.everywhere = 0
        self._by_tensor.clear()

    def met(self, ordering: Ordering) -> None:
        """The core has been through a synchronisation."""
        orders, tensor = ordering
        if tensor is None:
            self.everywhere += orders
        else:
            self._by_tensor[tensor] = self._by_tensor.get(tensor, 0) + orders

    def of(self, tensor: tuple[str, int]) -> int:
        """The epoch of accesses to a tensor."""
        return self.everywhere + self._by_tensor.get(tensor, 0)


class CoreState:
    """Registers, accumulators, random state and counts.

    Args:
        registers: how many the program uses.

    Attributes:
        registers: their values; linked code holds this list, and the arrays of the others.
        accumulators: per engine name a (partitions,) float32 array.
        random: per engine name the random generator's state (see isa.randomness).
        collectives: by group, how many collectives have begun in this launch, as a list of one
            number; linked code holds the lists.
        epochs: synchronisations with the other core of the rank in this launch so far.
    """

    __slots__ = ("_seeded", "accumulators", "collectives", "epochs", "random", "registers")

    def __init__(self, registers: int = 0) -> None:
        self.registers = [0] * registers
        self.accumulators: dict[str, np.ndarray] = {}
        self.random: dict[str, np.ndarray] = {}
        self._seeded: dict[str, np.ndarray] = {}  # what they hold at power-on
        self.collectives: dict[Any, list[int]] = {}
        self.epochs = Epochs()

    def reset(self) -> None:
        """As at power-on; every launch starts like this."""
        self.registers[:] = [0] * len(self.registers)
        for array in self.accumulators.values():
            array.fill(0)
        for engine, words in self.random.items():
            words[...] = self._seeded[engine]
        for begun in self.collectives.values():
            begun[0] = 0
        self.epochs.reset()

    def accumulator(self, engine: str, partitions: int) -> np.ndarray:
        """Accumulator registers of an engine, one float32 per partition; zero at power-on."""
        array = self.accumulators.get(engine)
        if array is None:
            array = self.accumulators[engine] = np.zeros(partitions, np.float32)
        return array

    def words(self, engine: str, first: Callable[[], np.ndarray]) -> np.ndarray:
        """State of an engine's random generators; `first` gives what it is at power-on."""
        if engine not in self.random:
            self._seeded[engine] = first()
            self.random[engine] = self._seeded[engine].copy()
        return self.random[engine]


class Wires:
    """The way to other cores and to the driver.

    Attributes:
        collective: runs a collective; see nki_dist.collectives.
        print: called with (prefix, array) by device_print.
        send: `send(core, channel, payload, what, instruction, number)`: a message to a core,
            numbered over the whole world; never waits.
        receive: `receive(core, channel, what, instruction, number)`: what to yield to get one; the
            yield gives the payload. Messages of one (core, channel) pair arrive in order, and
            `what` (plain data that describes the operation) and `number` (of the operation, if they
            are counted) must be equal on both sides. `what` is never changed afterwards.
        payload: `payload(shape, dtype)`: an uninitialised array that is cheap to send.
    """

    __slots__ = ("collective", "payload", "print", "receive", "send")

    def __init__(self, collective: Callable[..., Any]) -> None:
        self.collective = collective
        self.disconnect()

    def disconnect(self) -> None:
        """Forget what a launch connects: it refers to this, and would be freed late otherwise."""
        self.print: Callable[[str, np.ndarray], None] = _print_nothing
        self.send: Callable[..., None] = _nobody
        self.receive: Callable[..., Any] = _nobody
        self.payload: Callable[..., np.ndarray] = np.empty


class Core(NamedTuple):
    """All three."""

    slot: CoreSlot
    state: CoreState
    wires: Wires


def _nobody(*_: Any) -> Any:
    raise AssertionError("this core isn't connected to others")


def _print_nothing(prefix: str, array: np.ndarray) -> None:
    """Where device_print goes between launches."""
