"""What a NeuronCore keeps between instructions besides tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class CoreState:
    """Registers, engine accumulators, random state and the way to other cores.

    Attributes:
        core: physical core within the launch grid.
        cores: physical cores in the grid.
        rank: rank of the logical core in its world.
        ranks: how many ranks the world has.
        ranks_per_node: how many of them NeuronLink connects; 0 means as in one instance.
        algorithm: name of the algorithm that collectives must use; "" leaves it to them.
        collectives: by group, how many collectives have begun in this launch.
        epoch: synchronisations with the other core of the rank in this launch so far.
        registers: values of the program's registers.
        accumulators: per engine name a float32 array, one register per partition.
        random: per engine name the random generator's state (see isa.randomness).
        stopping: set from outside to end a run that doesn't wait for anybody.
        print: called with (prefix, array) by device_print.
        send: `send(core, channel, payload, what, instruction, number)`: a message to a core,
            numbered over the whole world; never waits.
        receive: `receive(core, channel, what, instruction, number)`: what to yield to get one; the
            yield gives the payload. Messages of one (core, channel) pair arrive in order, and
            `what` (plain data that describes the operation) and `number` (of the operation, if they
            are counted) must be equal on both sides. `what` is never changed afterwards.
        payload: `payload(shape, dtype)`: an uninitialised array that is cheap to send.
        collective: runs a collective; see nki_dist.collectives.
    """

    __slots__ = (
        "accumulators",
        "algorithm",
        "collective",
        "collectives",
        "core",
        "cores",
        "epoch",
        "payload",
        "print",
        "random",
        "rank",
        "ranks",
        "ranks_per_node",
        "receive",
        "registers",
        "send",
        "stopping",
    )

    def __init__(self, core: int, cores: int, rank: int = 0, registers: int = 0) -> None:
        self.core = core
        self.cores = cores
        self.rank = rank
        self.registers = [0] * registers
        self.ranks = 1
        self.ranks_per_node = 0
        self.algorithm = ""
        self.collectives: dict[Any, int] = {}
        self.accumulators: dict[str, np.ndarray] = {}
        self.random: dict[str, Any] = {}
        self.collective: Callable[..., Any] = _nobody
        self.stopping = False
        self.epoch = 0
        self.print: Callable[[str, np.ndarray], None]
        self.send: Callable[..., None]
        self.receive: Callable[..., Any]
        self.payload: Callable[..., np.ndarray]
        self.disconnect()

    def disconnect(self) -> None:
        """Forget what a launch connects: it refers to this, and would be freed late otherwise."""
        self.print = _print_nothing
        self.send = self.receive = _nobody
        self.payload = np.empty

    @property
    def name(self) -> int | str:
        """How messages call this core: by number, or with its rank where there are several."""
        return self.core if self.ranks == 1 else f"rank {self.rank} core {self.core}"

    def peer(self, core: int) -> int:
        """World number of a core of this rank."""
        return self.rank * self.cores + core

    def reset(self) -> None:
        """As at power-on; every launch starts like this."""
        self.registers[:] = [0] * len(self.registers)
        self.collectives.clear()
        self.accumulators.clear()
        self.random.clear()
        self.stopping = False
        self.epoch = 0

    def accumulator(self, engine: str, partitions: int) -> np.ndarray:
        """Accumulator registers of an engine, one float32 per partition; zero at power-on."""
        array = self.accumulators.get(engine)
        if array is None:
            array = self.accumulators[engine] = np.zeros(partitions, np.float32)
        return array


def _nobody(*_: Any) -> Any:
    raise AssertionError("this core isn't connected to others")


def _print_nothing(prefix: str, array: np.ndarray) -> None:
    """Where device_print goes between launches."""
