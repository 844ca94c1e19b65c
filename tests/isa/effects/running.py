"""Single instructions, run again and again on memories that a test fills: what they do, observed.

An instruction is traced once and linked once. Nothing here looks at what it declares about its
effects: `dependences` measures which results depend on which elements, `kept` what stays of a
destination, `touched_state` which hidden state is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nki_dist import arch
from nki_dist.collectives.execute import link as collective
from nki_dist.compiler.trace import Trace
from nki_dist.dtypes import DType, float32
from nki_dist.dtypes.casts import converter
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import Core, CoreSlot, CoreState, Wires
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import Tensor
from nki_dist.isa.randomness import seeded
from nki_dist.isa.spec import tracing_with
from nki_dist.program import Access, Instruction, Storage, instructions
from nki_dist.program.walk import operands

Values = Mapping[str, Any]
FILLS = (0x3C, 0x3E)  # bytes; small numbers as floats, so that something added to them shows


@dataclass
class Case:
    """An instruction as a kernel would issue it.

    Attributes:
        body: issues it as its last instruction.
        values: contents of operands by parameter; others get distinct numbers.
        adds: a matmul adds to its destination.
        also: other contents; results depend on what they depend on with either.
        tries: numbers to put in place of elements, besides those that are always tried.
    """

    body: Callable[[], Any]
    platform: str = "trn2"
    values: Values = field(default_factory=dict)
    adds: bool = False
    also: Values = field(default_factory=dict)
    tries: Sequence[float] = ()

    def traced(self, slot: CoreSlot | None = None) -> Machine:
        platform = arch.get(self.platform)
        trace = Trace("case", platform, 0, 2)
        with tracing_with(trace), trace.instance((), ()):
            self.body()
        *_, i = instructions(trace.program.body)
        if INSTRUCTIONS[i.opcode].accumulates:
            i.accumulation = "add" if self.adds else "replace"
        return Machine(i, platform, self, slot or CoreSlot(cores=2))


class Machine:
    """One instruction and the memories of its operands.

    Attributes:
        start: bytes of every storage before each run, by number.
        printed: what runs have printed.
    """

    def __init__(self, i: Instruction, platform: Any, case: Case, slot: CoreSlot) -> None:
        self.i, self.platform, self.case, self.slot = i, platform, case, slot
        self.spec = INSTRUCTIONS[i.opcode]
        self.start: dict[int, np.ndarray] = {}
        self._now: dict[int, np.ndarray] = {}
        self.state, self.wires = CoreState(64), Wires(collective)
        self.printed: list[Any] = []
        self.wires.print = lambda prefix, array: self.printed.append(prefix)
        self.fill(case.values)
        core = Core(slot, self.state, self.wires)
        self.kit = Kit(lambda s: self._now[s.number], core, platform)

    def fill(self, values: Values) -> None:
        """Contents of the operands before every run."""
        for name, a in self.tensors():
            s, dtype = a.storage, a.dtype
            contents = numbers(dtype, s.nbytes // dtype.itemsize, s.number)
            if name in values:
                given = encoded(np.asarray(values[name]).reshape(-1), dtype)
                contents = np.resize(given, contents.shape)
            self.start[s.number] = contents.view(np.uint8).copy()
            self._now[s.number] = np.empty(s.nbytes, np.uint8)

    def tensors(self) -> Iterator[tuple[str, Access]]:
        """Operands by parameter, and the tensors with run-time indices."""
        for name, a in operands(self.i.args):
            yield name, a
            if a.dynamic is not None and isinstance(a.dynamic.source, Access):
                yield f"index of {name}", a.dynamic.source

    def with_mode(self, letter: str) -> list[tuple[str, Access]]:
        """Operands that are read, or written."""
        roles = self.spec.roles
        found = [(n, a) for n, a in operands(self.i.args) if isinstance(roles.get(n), Tensor)]
        return [(n, a) for n, a in found if letter in roles[n].mode]

    def link(self, i: Instruction | None = None) -> None:
        self.kit.begin()
        self.step = self.kit.step(self.spec.lower(i or self.i, self.kit))

    def run(self, prepare: Callable[[], None] | None = None, **changed: Any) -> list[np.ndarray]:
        """Bits of the written operands after a run.

        Args:
            prepare: sets hidden state first.
            changed: contents of storages, as `s3=bytes`.
        """
        self.restore(**changed)
        if prepare is not None:
            prepare()
        with np.errstate(all="ignore"):
            self.step()
        return self.results()

    def restore(self, **changed: Any) -> None:
        """Memories and state as before a run."""
        for number, contents in self.start.items():
            self._now[number][...] = changed.get(f"s{number}", contents)
        self.state.reset()

    def results(self) -> list[np.ndarray]:
        return [self.kit.raw(plain(a)).copy() for _, a in self.with_mode("w")]


def plain(a: Access) -> Access:
    """The elements an access may touch: all of the tensor if that is known at run time only."""
    if a.dynamic is None:
        return a
    s = a.storage
    return Access(s, 0, s.shape, s.strides, s.dtype)


def encoded(values: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as the type's bits; unsigned integers of its width are bits already."""
    if not dtype.is_float or dtype.is_mx:
        return values.astype(dtype.storage).view(dtype.raw)
    out = np.empty(values.shape, dtype.storage)
    converter(float32, dtype)(out, values.astype(np.float32))
    return out.view(dtype.raw)


def decoded(bits: np.ndarray, dtype: DType) -> np.ndarray:
    out = np.empty(bits.shape, np.float32)
    converter(dtype, float32)(out, bits.view(dtype.storage))
    return out


def numbers(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Bits of different numbers, exact in bfloat16 and not in order."""
    order = (np.arange(count) + 5 * seed) * 37 % 101
    if dtype.is_mx:
        return (order * 0x01030507 & 0x37373737).astype(dtype.raw)
    return encoded(order / 32 + 0.5 if dtype.is_float else order % 7 + 1, dtype)


def perturbations(dtype: DType, bits: np.ndarray, more: Sequence[float]) -> list[int]:
    """Bits to try in place of an element: poison, extremes, values found elsewhere."""
    if dtype.is_mx:
        return [0x7E7E7E7E & ((1 << dtype.bits) - 1), 0x11111111 & ((1 << dtype.bits) - 1)]
    tried = [np.nan, 192.0, -192.0, 0.0, 1.0, 2.40625] if dtype.is_float else [0, 1, 2, 100, 5]
    tried += more
    elsewhere = bits.reshape(-1)[:: max(1, bits.size // 8)]
    return sorted({*encoded(np.array(tried), dtype).tolist(), *elsewhere.tolist()})


@dataclass
class Dependence:
    """Which elements of a result depend on which of a source.

    Attributes:
        depends: (elements of the source, elements of the result).
        tried: source elements for which some other value didn't raise an error.
    """

    depends: np.ndarray
    tried: np.ndarray


def dependences(machine: Machine) -> dict[tuple[str, str], list[Dependence]]:
    """By (source, result); a result's contents before the run are the source `before RESULT`."""
    found = _dependences(machine)
    if machine.case.also:
        machine.fill(machine.case.also)
        for pair, others in _dependences(machine).items():
            for one, other in zip(found[pair], others, strict=True):
                one.depends |= other.depends
                one.tried |= other.tried
        machine.fill(machine.case.values)
    return found


def sources_of(machine: Machine) -> list[tuple[str, Access]]:
    """What results may depend on: operands that are read, and what was in the others before."""
    read = machine.with_mode("r")
    mine = {a.storage.number for _, a in read}
    written = [(n, a) for n, a in machine.with_mode("w") if a.storage.number not in mine]
    return [*read, *((f"before {n}", a) for n, a in written)]


def _dependences(machine: Machine) -> dict[tuple[str, str], list[Dependence]]:
    machine.link()
    want = machine.run()
    written = machine.with_mode("w")
    found: dict[tuple[str, str], list[Dependence]] = {}
    for name, a in sources_of(machine):
        a = plain(a)
        limit = 2 if name.startswith("before") else None
        depends, tried = _perturbed(machine, a, want, limit)
        for (result, _), one in zip(written, depends, strict=True):
            found.setdefault((name, result), []).append(Dependence(one, tried))
    return found


def _perturbed(
    machine: Machine, a: Access, want: list[np.ndarray], limit: int | None
) -> tuple[list[np.ndarray], np.ndarray]:
    changed = machine.start[a.storage.number].copy()
    view = np.ndarray(a.shape, a.dtype.raw, changed, a.offset * a.dtype.itemsize, _bytes(a))
    depends = [np.zeros((a.size, w.size), bool) for w in want]
    tried = np.zeros(a.size, bool)
    choices = perturbations(a.dtype, view, machine.case.tries)[:limit]
    for n, index in enumerate(np.ndindex(a.shape)):
        own = view[index]
        for bits in choices:
            if bits == own:
                continue
            view[index] = bits
            try:
                got = machine.run(None, **{f"s{a.storage.number}": changed})
            except NkiError:
                continue
            tried[n] = True
            for one, w, g in zip(depends, want, got, strict=True):
                one[n] |= (w != g).reshape(-1)
        view[index] = own
    return depends, tried


def _bytes(a: Access) -> tuple[int, ...]:
    return tuple(s * a.dtype.itemsize for s in a.strides)


def kept(machine: Machine) -> bool:
    """Whether some element of a destination, addressed when compiled, stays as it was."""
    machine.link()
    runs = []
    for fill in FILLS:
        changed = {
            f"s{a.storage.number}": np.full(a.storage.nbytes, fill, np.uint8)
            for _, a in machine.with_mode("w")
        }
        runs.append(machine.run(None, **changed))
    for (_, a), one, two in zip(machine.with_mode("w"), *runs, strict=True):
        fills = [np.frombuffer(bytes([f] * a.dtype.itemsize), a.dtype.raw)[0] for f in FILLS]
        if a.dynamic is None and bool(((one == fills[0]) & (two == fills[1])).any()):
            return True
    return False


ENGINES = ("vector", "gpsimd", "scalar", "tensor")


def _set_state(machine: Machine, sums: dict[str, int], seed: int) -> None:
    for engine in ENGINES:
        machine.state.accumulator(engine, 128)[...] = sums.get(engine, 3) + np.arange(128) / 64
    for engine in ("vector", "gpsimd"):
        words = seeded(engine, seed, 128)
        machine.state.words(engine, words.copy)[...] = words


def touched_state(machine: Machine) -> set[tuple[str, str]]:
    """Hidden state that a run changes, or that its results depend on."""
    state, found = machine.state, set()
    machine.link()
    machine.printed.clear()
    want = machine.run(lambda: _set_state(machine, {}, 4))
    if machine.printed:
        found.add(("print", ""))
    sums = {e: state.accumulator(e, 128).copy() for e in ENGINES}
    seeds = {e: words.copy() for e, words in state.random.items()}
    _set_state(machine, {}, 4)
    changed = {("accumulator", e) for e in ENGINES if (sums[e] != state.accumulator(e, 128)).any()}
    if any((words != state.random[e]).any() for e, words in seeds.items()):
        changed.add(("random", ""))
    other = {("accumulator", e): ({e: 9}, 4) for e in ENGINES}
    for which, (sum_of, seed) in {**other, ("random", ""): ({}, 5)}.items():
        got = machine.run(lambda sum_of=sum_of, seed=seed: _set_state(machine, sum_of, seed))
        if any((w != g).any() for w, g in zip(want, got, strict=True)):
            found.add(which)
    return found | changed


def retyped(machine: Machine, types: Mapping[str, DType]) -> Machine:
    """The same instruction with some operands of other types, holding the same numbers.

    Raises:
        NkiError: the instruction refuses the types.
    """
    storages: dict[int, Storage] = {}

    def change(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [change(name, v) for v in value]
        if not isinstance(value, Access) or name not in types:
            return value
        old, dtype = value.storage, types[name]
        new = storages.get(old.number)
        if new is None:
            new = Storage(old.number, old.region, old.shape, dtype, old.name, old.role)
            storages[old.number] = new
        return Access(new, value.offset, value.shape, value.strides, dtype, value.dynamic)

    i = machine.i.with_args({name: change(name, v) for name, v in machine.i.args.items()})
    made = Machine(i, machine.platform, machine.case, machine.slot)
    for name, a in machine.tensors():
        if name in types:
            bits = machine.start[a.storage.number].view(a.dtype.raw)
            values = encoded(decoded(bits, a.dtype), types[name])
            made.start[a.storage.number] = values.view(np.uint8).copy()
    made.spec.verify(i, machine.platform)
    return made
