"""Finds which elements of its operands an instruction made a result of, by changing them.

An instruction, or all that met in an exchange, is carried out again on what it found, with some
elements of an operand changed; a result that changes depends on them. So nothing has to be known of
the instruction, and what counts is what influenced this very value: of a selection the element that
was selected, of a NaN the element that was NaN.

Elements are changed by halves: those whose index in one dimension has a certain bit, then those
that haven't. A result that only one half changes depends on elements of that half. After all bits
of all dimensions the elements left are a box that holds all that the result depends on, and exactly
those for element-wise instructions, matmuls, reductions, transposes and copies; where the box is
small its elements are tried one by one. An operand is changed to NaN, and to large numbers of both
signs if that changes nothing (a comparison); integers to others within their range; and to each
other's values, 0, and the largest, if that shows nothing either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nki_dist import arch
from nki_dist.dtypes import float32
from nki_dist.dtypes.casts import converter
from nki_dist.errors import NkiError
from nki_dist.insight.capture import Found
from nki_dist.insight.regions import Region, bits_of, follow, region
from nki_dist.insight.replay import key_of
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.kit import Kit
from nki_dist.linking.indirect import lowered
from nki_dist.linking.linked import LinkedExchange, Segment
from nki_dist.program import Access, Storage
from nki_dist.runtime.cores import make_core
from nki_dist.runtime.executor import Executor
from nki_dist.runtime.scheduler import Scheduler

# Masks are written as large numbers or as infinities; from here on they are the same. A choice.
HUGE: Final = 1e20
ONE_BY_ONE = 16  # elements of a box that are tried one by one
Odd = Callable[[np.ndarray], np.ndarray]  # which values are infinite or NaN, or NaN alone

LARGE = 2.0**40  # what floats are changed to, if their type has it


class Input:
    """One operand: of an instruction, or the same one of all that met.

    Args:
        members: the instruction's number among those, the elements, their bits.
        keeps: what may be left of a result's former contents: if it is, any change shows it.
    """

    def __init__(self, members: Sequence[tuple[int, Region, np.ndarray]], keeps: bool) -> None:
        self.members = list(members)
        self.keeps = keeps
        _, first, _ = self.members[0]
        self.dtype = first.dtype
        self.shape = (len(self.members), *first.shape)
        self.bits = np.stack([bits for _, _, bits in self.members])

    def others(self) -> Iterator[np.ndarray]:
        """The same operand with all its elements changed, in several ways."""
        bits, dtype = self.bits, self.dtype
        if self.keeps and dtype.kind != "bool":
            yield ~bits
            return
        if dtype.is_float:
            large = min(LARGE, float(dtype.max))
            others = [np.full_like(bits, bits_of(v, dtype)) for v in (np.nan, large, -large)]
        elif dtype.kind == "bool":
            others = [np.where(bits, bits.dtype.type(0), bits.dtype.type(1))]
        else:
            values = bits.view(dtype.storage)
            mirrored = np.add(values.max() - values, values.min(), dtype=values.dtype)
            others = [mirrored.view(dtype.raw), bits ^ bits.dtype.type(1)]
        # What is found by comparing with others may only show with values that are there.
        others.append(np.roll(bits, 1))
        others += [np.zeros_like(bits), np.full_like(bits, bits.max())]
        yield from (m for m in others if not np.array_equal(m, bits))


class Probe:
    """Carries out again what `found` says.

    Args:
        found: of one instruction, or of all that met in an exchange.
    """

    def __init__(self, found: Sequence[Found]) -> None:
        self.found = list(found)
        self._memory: dict[Any, np.ndarray] = {}
        self.kits: list[Kit] = []
        self._executors = [self._executor(f) for f in self.found]
        self.inputs = self._inputs()
        self.outputs = [(n, r) for n, f in enumerate(self.found) for r in f.writes]

    def _executor(self, f: Found) -> Executor:
        memory, i, core = self._memory, f.instruction, make_core(f.program, f.slot)

        def buffer(storage: Any) -> np.ndarray:
            key = key_of(f.slot, storage)
            if key not in memory:
                memory[key] = np.zeros(storage.nbytes, np.uint8)
            return memory[key]

        kit = Kit(buffer, core, arch.get(f.program.platform))
        kit.masks = {number: mask.copy() for number, mask in f.masks.items()}
        self.kits.append(kit)
        spec = INSTRUCTIONS[i.opcode]
        kit.begin(waits=spec.synchronises)
        step: Segment | LinkedExchange
        if spec.synchronises:
            step = LinkedExchange(i, (False, None), spec.link_exchange(i, kit))
        else:
            step = Segment([kit.step(lowered(i, kit, f.masks))], [i])
        return Executor(f.program, [step], core)

    def _inputs(self) -> list[Input]:
        groups: dict[Any, list[tuple[int, Region, np.ndarray]]] = {}
        seen = set()
        for n, f in enumerate(self.found):
            for position, r in enumerate((*f.reads, *f.writes)):
                same = (r.key, r.dtype.name, r.shape, r.places.tobytes())
                if same in seen or not r.places.size:
                    continue
                seen.add(same)
                kind = (position, r.shape, r.dtype.name, position >= len(f.reads))
                groups.setdefault(kind, []).append((n, r, f.bits[id(r)]))
        return [Input(members, kind[-1]) for kind, members in groups.items()]

    # ---- carrying out ---------------------------------------------------------------------------

    def run(self, changed: Input | None = None, bits: Any = None, calm: Odd | None = None) -> bool:
        """Carry it out on what was found, but for one operand.

        Args:
            changed, bits: that operand and what it holds.
            calm: what is odd by this test is 1 in the operands, but for what is changed.

        Returns:
            Whether it came to its end: an index among the values may have left its range.
        """
        scheduler = Scheduler()
        try:
            for f, kit, executor in zip(self.found, self.kits, self._executors):
                scheduler.add(executor)
                follow(kit.state, f.state)
                for number, mask in f.masks.items():
                    kit.masks[number][...] = mask
            for operand in self.inputs:
                content = bits if operand is changed else operand.bits
                if calm is not None:
                    content = calmed(content, operand, changed, calm)
                for (n, r, _), part in zip(operand.members, content):
                    r.put(self.kits[n], part)
            for f, kit in zip(self.found, self.kits):
                for r in f.fixed:
                    r.put(kit, f.bits[id(r)])
            with np.errstate(all="ignore"):
                scheduler.run()
        except NkiError:
            return False
        finally:
            scheduler.close()
        return True

    def results(self, targets: Sequence[tuple[int, np.ndarray]]) -> np.ndarray:
        """Bits of elements of the outputs after a run, as 32-bit numbers, one after the other.

        Args:
            targets: numbers of outputs, and of elements in them.
        """
        parts = []
        for number, elements in targets:
            n, r = self.outputs[number]
            parts.append(r.get(self.kits[n]).reshape(-1)[elements].astype(np.uint32))
        return np.concatenate(parts) if parts else np.empty(0, np.uint32)

    def values(self, number: int, elements: np.ndarray) -> np.ndarray:
        """Elements of an output after a run, as numbers."""
        n, r = self.outputs[number]
        return np.asarray(r.values(r.get(self.kits[n])).reshape(-1)[elements])

    # ---- influence ------------------------------------------------------------------------------

    def influence(
        self, targets: Sequence[tuple[int, np.ndarray]], calm: Odd | None
    ) -> list[np.ndarray]:
        """Of each input, which elements (members, *shape) some of these results depend on."""
        assert self.run(calm=calm), "it did come to its end when it was recorded"
        base = self.results(targets)
        return [self._depends(operand, targets, base, calm) for operand in self.inputs]

    def _depends(
        self,
        operand: Input,
        targets: Sequence[tuple[int, np.ndarray]],
        base: np.ndarray,
        calm: Odd | None,
    ) -> np.ndarray:
        total = np.zeros(operand.shape, bool)
        settled = np.zeros(base.shape, bool)  # that they depend on the operand
        for other in operand.others():

            def changes(where: np.ndarray | None, other: np.ndarray = other) -> np.ndarray:
                bits = other if where is None else np.where(where, other, operand.bits)
                if not self.run(operand, bits, calm):
                    return np.zeros(base.shape, bool)
                return np.asarray(self.results(targets) != base)

            depends = changes(None) & ~settled
            if depends.any():
                total |= self._box(operand.shape, depends, changes)
                settled |= depends
            if settled.all():
                break
        return total

    def _box(self, shape: tuple[int, ...], depends: np.ndarray, changes: Any) -> np.ndarray:
        """The elements that results depend on, of those that do."""
        targets = np.flatnonzero(depends)
        axes = []
        for d, n in enumerate(shape):
            allowed = np.ones((targets.size, n), bool)
            index = np.arange(n)
            for b in range(max(n - 1, 0).bit_length()):
                one = (index >> b & 1).astype(bool)
                along = one.reshape([-1 if k == d else 1 for k in range(len(shape))])
                with_bit = changes(np.broadcast_to(along, shape))[targets]
                without = changes(np.broadcast_to(~along, shape))[targets]
                allowed &= one | ~(with_bit & ~without)[:, None]
                allowed &= ~one | ~(without & ~with_bit)[:, None]
            axes.append(allowed)
        total = np.zeros(shape, bool)
        for rows in _distinct(axes):
            total[np.ix_(*[np.flatnonzero(allowed[rows]) for allowed in axes])] = True
        if 1 < total.sum() <= ONE_BY_ONE:
            total = _narrowed(total, depends, changes)
        return total


def _narrowed(total: np.ndarray, depends: np.ndarray, changes: Any) -> np.ndarray:
    """Those of a few elements that change something by themselves; all if none does."""
    alone = np.zeros(total.shape, bool)
    for at in np.argwhere(total):
        single = np.zeros(total.shape, bool)
        single[tuple(at)] = True
        alone[tuple(at)] = bool((changes(single) & depends).any())
    return alone if alone.any() else total


def _distinct(axes: Sequence[np.ndarray]) -> list[int]:
    """One result of each group that has the same box."""
    rows = np.concatenate([np.packbits(allowed, axis=1) for allowed in axes], axis=1)
    _, first = np.unique(rows, axis=0, return_index=True)
    return [int(n) for n in first]


def calmed(bits: np.ndarray, operand: Input, changed: Input | None, test: Odd) -> np.ndarray:
    """The bits with 1 in place of what is odd, but for what was changed on purpose."""
    if not operand.dtype.is_float:
        return bits
    odd = np.asarray(test(operand.bits.view(operand.dtype.storage)))
    if operand is changed:
        odd &= bits == operand.bits
    return np.where(odd, bits_of(1, operand.dtype), bits) if odd.any() else bits


def not_finite(values: np.ndarray) -> np.ndarray:
    """Which elements are infinite or NaN."""
    return np.asarray(~np.isfinite(values))


def unrepresentable(found: Found, elements: np.ndarray, values: np.ndarray) -> list[str]:
    """What is said of a write whose type couldn't hold the values: it changed some by far more than
    rounding, beside the largest of them. What is small beside others may become 0 (the exponentials
    of a softmax), and what stands for a mask infinite. What the values would be is found by writing
    them to a float32 tensor."""
    i, spec = found.instruction, INSTRUCTIONS[found.instruction.opcode]
    written, bits = spec.writes(i), spec.effects.bits
    name = next((name for name, value in i.args.items() if written and value is written[0]), "")
    if len(written) > 1 or not name or spec.synchronises or "r" in spec.roles[name].mode:
        return []
    a: Access = i[name]
    if a.dynamic is not None or (bits is not None and not bits.converts):
        return []
    if a.dtype is float32 or a.dtype.is_mx or a.dtype.itemsize != a.storage.dtype.itemsize:
        return []
    s = Storage(len(found.program.storages), a.region, a.storage.shape, float32)
    wide = Access(s, a.offset, a.shape, a.strides, float32)
    to = region(found.slot, wide)
    changed = replace(found, instruction=i.with_args({**i.args, name: wide}), writes=[to])
    changed.bits = {**found.bits, id(to): np.zeros(to.shape, np.uint32)}
    probe = Probe([changed])
    if not probe.run():
        return []
    wide_values, narrow = probe.values(0, elements), np.empty(values.shape, a.dtype.storage)
    got, exact = values.astype(np.float64), wide_values.astype(np.float64)
    with np.errstate(all="ignore"):
        converter(float32, a.dtype)(narrow, wide_values)
        same = narrow.view(a.dtype.raw) == np.ascontiguousarray(values).view(a.dtype.raw)
        if not same.all():
            return []  # it isn't this that made the difference
        finite = np.isfinite(exact) & (np.abs(exact) < HUGE)
        largest = np.abs(exact[finite]).max(initial=0.0)
        off = finite & ~(np.abs(got - exact) <= 0.25 * largest)
        off &= a.dtype.is_float | ~(np.abs(got - exact) <= 1)
    if not off.any():
        return []
    most = int(np.argmax(np.where(off, np.abs(exact), -1)))
    return [f"{exact[most]:.6g} became {got[most]:.6g} in {a.dtype}"]
