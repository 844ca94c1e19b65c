"""Instructions that wait for other cores, on a few cores at once: who meets whom, what arrives.

Each core's instruction is traced and linked by itself, on memories of its own; messages go through
a mailbox. Nothing here looks at what the instructions declare about their effects.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, permutations
from typing import Any

import numpy as np

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes import bfloat16, float32
from nki_dist.errors import NkiError
from nki_dist.isa.core import CoreSlot
from nki_dist.program import private_hbm, shared_hbm
from nki_dist.program.walk import operands
from tests.isa.effects.cases import hbm, t
from tests.isa.effects.running import FILLS, Case, Machine, retyped


@dataclass
class Rendezvous:
    """An instruction that several cores issue.

    Attributes:
        body: `body(me)` issues it on the core with this number over all ranks.
        ranks, cores: how many ranks, and cores in each.
        values: contents of operands by parameter.
    """

    body: Callable[[int], Any]
    ranks: int = 1
    cores: int = 2
    values: dict[str, Any] = field(default_factory=dict)

    def machines(self) -> list[Machine]:
        return [self._machine(me) for me in range(self.ranks * self.cores)]

    def _machine(self, me: int) -> Machine:
        rank, core = divmod(me, self.cores)
        slot = CoreSlot(me, rank, core, self.cores, self.ranks)
        machine = Case(lambda: self.body(me), "trn2", self.values).traced(slot)
        for name, a in machine.with_mode("r"):
            if name not in self.values:  # every core has data of its own
                contents = machine.start[a.storage.number].view(a.dtype.raw)
                contents[...] = np.roll(contents, me)
        return machine


class Mailbox:
    """Runs instructions until all are over; `met` has (sender, receiver) of every message."""

    def __init__(self, machines: list[Machine]) -> None:
        self.machines = machines
        self.met: set[tuple[int, int]] = set()
        self._letters: dict[tuple[int, int, str], deque[Any]] = defaultdict(deque)

    def run(self, changed: dict[int, dict[str, Any]] | None = None) -> list[list[np.ndarray]]:
        """Bits of the written operands of each core; `changed`: contents, by core."""
        waiting = []
        for me, machine in enumerate(self.machines):
            machine.restore(**(changed or {}).get(me, {}))
            machine.wires.send = self._sender(me)
            machine.wires.receive = lambda core, channel, *_, me=me: (core, me, channel)
            machine.kit.begin(waits=True)
            going = machine.spec.link_exchange(machine.i, machine.kit)()
            if going is not None:
                waiting.append((going, next(going, None)))
        while waiting:
            going, awaited = waiting.pop(0)
            while awaited is not None and self._letters[awaited]:
                try:
                    awaited = going.send(self._letters[awaited].popleft())
                except StopIteration:
                    awaited = None
            if awaited is not None:
                assert any(self._letters.values()), "nobody can go on"
                waiting.append((going, awaited))
        return [machine.results() for machine in self.machines]

    def _sender(self, me: int) -> Callable[..., None]:
        def send(core: int, channel: str, payload: Any, *_: Any) -> None:
            self.met.add((me, core))
            self._letters[me, core, channel].append(payload)

        return send


@dataclass
class Met:
    """A rendezvous, observed.

    Attributes:
        met: (sender, receiver) of every message.
        keeps: elements of some destination stay as they were.
        depends: results depend on data of other cores.
        state: hidden state that was touched, by kind.
        one_type: parameters that need one type.
    """

    rendezvous: Rendezvous
    machines: list[Machine]
    met: set[tuple[int, int]]
    keeps: bool
    depends: bool
    state: set[str]
    one_type: set[str]


@cache
def met(opcode: str) -> list[Met]:
    """All rendezvous of an instruction; nothing of this depends on what it declares."""
    return [_met(rendezvous) for rendezvous in RENDEZVOUS[opcode]]


def _met(rendezvous: Rendezvous) -> Met:
    machines = rendezvous.machines()
    box = Mailbox(machines)
    want = box.run()
    state = {
        kind
        for machine in machines
        for kind, touched in (
            ("accumulator", machine.state.accumulators),
            ("random", machine.state.random),
            ("print", machine.printed),
        )
        if touched
    }
    first = machines[0]
    data = {a.storage.number for n, a in first.with_mode("r") if n != "metadata_tensor"}
    other = {f"s{n}": first.start[n] ^ np.uint8(1) for n in data}
    got = box.run({0: other})
    others = zip(chain(*want[1:]), chain(*got[1:]), strict=True)
    depends = any((w != g).any() for w, g in others)
    return Met(rendezvous, machines, box.met, _keeps(box), depends, state, _of_one_type(first))


@cache
def between_cores(opcode: str) -> list[tuple[list[Machine], bool]]:
    """Machines of rendezvous of ranks with two cores, and whether the two of every rank wait for
    each other."""
    found = []
    for rendezvous in RENDEZVOUS[opcode]:
        if rendezvous.cores == 2:
            found.append(_waited(rendezvous.machines()))
            continue
        # One rank of a permutation takes no part.
        ranks = 3 if opcode == "collective_permute" else 2
        for regions in permutations((private_hbm, shared_hbm)):
            machines = replace(rendezvous, cores=2, ranks=ranks).machines()
            for machine in machines:
                for name, a in operands(machine.i.args):
                    a.storage.region = regions[name == "metadata_tensor"]
            found.append(_waited(machines))
    return found


def _waited(machines: list[Machine]) -> tuple[list[Machine], bool]:
    box = Mailbox(machines)
    box.run()
    pairs = [(core, core + 1) for core in range(0, len(machines), 2)]
    return machines, all({p, p[::-1]} <= box.met for p in pairs)


def _keeps(box: Mailbox) -> bool:
    runs = []
    for fill in FILLS:
        changed = {
            me: {
                f"s{a.storage.number}": np.full(a.storage.nbytes, fill, np.uint8)
                for name, a in machine.with_mode("w")
                if name != "metadata_tensor"
            }
            for me, machine in enumerate(box.machines)
        }
        runs.append(box.run(changed))
    fills = [int.from_bytes(bytes([fill]) * 4, "little") for fill in FILLS]
    return any(
        a.dtype is float32 and bool(((one == fills[0]) & (two == fills[1])).any())
        for machine, ones, twos in zip(box.machines, *runs, strict=True)
        for (_, a), one, two in zip(machine.with_mode("w"), ones, twos, strict=True)
    )


def _of_one_type(machine: Machine) -> set[str]:
    """Operands that can't be of another type than the rest."""
    names = {n for n, a in operands(machine.i.args) if a.dtype is float32}
    found = set()
    for name in names if len(names) > 1 else ():
        try:
            retyped(machine, {name: bfloat16})
        except NkiError:
            found.add(name)
    return found


BOTH = [[0, 1]]
META = {"metadata_tensor": [2, 2, 0, 3, 0, 0]}  # counts, displacements, counts received


def meta() -> Any:
    return hbm(3, 2, dtype=nl.uint32)


def exchange(to: Callable[[int], int], n: int = 5, pipe: int = 0, kind: Any = None) -> Rendezvous:
    engine = kind or nisa.dma_engine.dma
    return Rendezvous(
        lambda me: nisa.sendrecv(
            src=t(3, n), dst=t(3, n), send_to_rank=to(me), recv_from_rank=to(me), pipe_id=pipe,
            dma_engine=engine,
        )
    )  # fmt: skip


def barrier(cores: tuple[int, ...], n: int = 5) -> Rendezvous:
    return Rendezvous(lambda me: nisa.core_barrier(t(3, n, buffer=nl.shared_hbm), cores))


def ranks(body: Callable[[int], Any], **values: Any) -> Rendezvous:
    return Rendezvous(body, ranks=2, cores=1, values=values)


RENDEZVOUS: dict[str, list[Rendezvous]] = {
    "sendrecv": [
        exchange(lambda me: 1 - me),
        exchange(lambda me: 1 - me, kind=nisa.dma_engine.gpsimd_dma),
        exchange(lambda me: me),
    ],
    "core_barrier": [barrier((0, 1)), barrier((1,))],
    "all_reduce": [ranks(lambda me: ncc.all_reduce([hbm(4, 3)], [hbm(4, 3)], BOTH, nl.add))],
    "all_gather": [ranks(lambda me: ncc.all_gather([hbm(4, 3)], [hbm(8, 3)], BOTH, 0))],
    "all_gather_v": [
        ranks(lambda me: ncc.all_gather_v([hbm(12)], [hbm(24)], BOTH, meta()), **META)
    ],
    "all_to_all": [ranks(lambda me: ncc.all_to_all([hbm(4, 3)], [hbm(4, 3)], BOTH, 0))],
    "all_to_all_v": [
        ranks(lambda me: ncc.all_to_all_v([hbm(12)], [hbm(24)], BOTH, meta()), **META)
    ],
    "collective_permute": [
        ranks(lambda me, pairs=pairs: ncc.collective_permute([hbm(4, 3)], [hbm(4, 3)], pairs))
        for pairs in ([[0, 1], [1, 0]], [[0, 1]])
    ],
    "collective_permute_implicit": [
        ranks(lambda me: ncc.collective_permute_implicit([[hbm(4, 3)]], [[hbm(4, 3)]], BOTH))
    ],
    "collective_permute_implicit_reduce": [
        ranks(
            lambda me: ncc.collective_permute_implicit_reduce(
                [[hbm(4, 3)]], [[hbm(4, 3)]], [[hbm(4, 3)]], BOTH, nl.add
            )
        )
    ],
    "reduce_scatter": [
        ranks(lambda me: ncc.reduce_scatter([hbm(4, 3)], [hbm(2, 3)], BOTH, 0, nl.add))
    ],
}
