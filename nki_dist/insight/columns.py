"""What a launch carried out, as columns of numbers for a page: steps, operands, pictures.

Steps are numbered without gaps here; `number` has what records call them. Tensors are those of the
whole launch: what cores share is one, what each core has for itself is one for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist.insight.film import Film, Picture
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Key, key_of, title
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Storage
from nki_dist.timing.timeline import Timeline

LEAST = 3  # rounds of what is told as a run length


class Columns:
    """Everything of a film but its pictures' values.

    Attributes:
        head: what JSON holds: names, tensors, ways of access, loops, messages.
        arrays: columns by name.
        steps: by number of an instruction, its step.
    """

    def __init__(self, film: Film) -> None:
        self._film, launched = film, film.launched
        self._tensors: dict[Key, int] = {}
        self._told: list[list[Any]] = []
        self._storages: list[Storage] = []
        self._accesses: dict[Any, int] = {}
        self._cache: dict[int, int] = {}  # by region, the number of its way of access
        self._lines: dict[str, int] = {}
        self._ops: dict[str, int] = {}
        self._params: dict[str, int] = {}
        self._kinds: dict[tuple[int, int], Any] = {}
        numbers = [n for n, i in enumerate(film.instructions) if i is not None]
        self.steps = {number: at for at, number in enumerate(numbers)}
        rows = [self._step(number) for number in numbers]
        self._initial = self._given()
        counts = [len(operands) for _, _, operands in rows]
        every = np.array([o for *_, found in rows for o in found], np.int64).reshape(-1, 4)
        cores = np.array([film.cores[n] for n in numbers], np.uint16)
        line = np.array([line for line, *_ in rows], np.uint32)
        op = np.array([op for _, op, _ in rows], np.uint16)
        self.arrays: dict[str, np.ndarray] = {
            "number": np.array(numbers, np.uint32),
            "line": line,
            "first": np.cumsum([0, *counts]).astype(np.uint32),
            "tensor": every[:, 1].astype(np.uint32),
            "access": every[:, 2].astype(np.uint32),
            "core": cores,
            "op": op,
            "param": every[:, 0].astype(np.uint16),
            "writes": every[:, 3].astype(np.uint8),
        }
        same = line.astype(np.int64) * (len(self._ops) + 1) + op
        self.head: dict[str, Any] = {
            "kernel": launched.compiled.kernel,
            "cores": [s.title for s in launched.slots],
            "ranks": [s.rank for s in launched.slots],
            "files": list(self._lines),
            "ops": list(self._ops),
            "params": list(self._params),
            "tensors": self._told,
            "accesses": list(self._accesses),
            "folds": [run_lengths(same[cores == core]) for core in range(len(launched.slots))],
            "met": [[self.steps[a], self.steps[b], n] for a, b, n in self._messages()],
            "births": self._births(),
        }

    def _step(self, number: int) -> tuple[int, int, list[tuple[int, int, int, int]]]:
        film = self._film
        i, core = film.at(number), film.cores[number]
        kind = self._kinds.get((core, id(i)))
        if kind is None:
            line = _number(self._lines, film.launched.where(core, i) or "?")
            found = film.parameters[id(i)]
            flat = [
                (_number(self._params, name), a, writes)
                for writes, accesses in enumerate(found)
                for name, a in accesses.items()
            ]
            kind = self._kinds[core, id(i)] = line, _number(self._ops, title(i)), flat
        line, op, flat = kind
        regions, slot = film.regions(number, [a for _, a, _ in flat]), film.launched.slots[core]
        return line, op, [
            (name, self._tensor(r.key, r.storage, slot), self._access(r), writes)
            for (name, _, writes), r in zip(flat, regions)
        ]  # fmt: skip

    def _tensor(self, key: Key, s: Storage, slot: CoreSlot) -> int:
        if key in self._tensors:
            return self._tensors[key]
        rows = s.shape[0] if s.region.on_chip else s.nbytes // s.dtype.itemsize // s.shape[-1]
        core = slot.core if s.role == "local" else -1
        at = s.address if s.region.on_chip else None
        told = [s.title, s.region.value, list(s.shape), str(s.dtype), core, rows, s.dtype.itemsize]
        self._told.append([*told, list(at) if at else None, s.partition_bytes])
        self._storages.append(s)
        return self._tensors.setdefault(key, len(self._tensors))

    def tensor(self, number: int) -> tuple[Key, Storage] | None:
        """A tensor by its number."""
        keys = list(self._tensors)
        return (keys[number], self._storages[number]) if 0 <= number < len(keys) else None

    def _access(self, r: Region) -> int:
        found = self._cache.get(id(r))
        if found is None:
            p = r.pattern
            first = tuple(np.asarray(p.first).tolist()) if np.ndim(p.first) else int(p.first)
            way = first, p.shape, p.strides, p.run, r.dtype.itemsize
            found = self._cache[id(r)] = _number(self._accesses, way)
        return found

    def _given(self) -> dict[int, Picture]:
        """Arguments and constants, by tensor, whether somebody reads them or not."""
        film, found = self._film, dict[int, Picture]()
        for slot in film.launched.slots:
            for s in film.launched.program(slot.core).storages:
                if s.role == "input":
                    picture = film.arguments[slot.rank, s.index]
                elif s.role == "constant":
                    data = np.frombuffer(s.data or b"", s.dtype.storage).reshape(s.shape)
                    picture = Picture(data, True)
                else:
                    continue
                found.setdefault(self._tensor(key_of(slot, s), s, slot), picture)
        return found

    def _messages(self) -> list[tuple[int, int, int]]:
        found: dict[tuple[int, int], int] = {}
        for a, b, nbytes in self._film.messages:
            found[a, b] = found.get((a, b), 0) + nbytes
        return [(a, b, nbytes) for (a, b), nbytes in found.items()]

    def _births(self) -> list[list[int]]:
        """Steps at which tensors have nothing in them once more, which they had."""
        seen: set[Key] = set()
        found, at = [], 0
        for n, i in enumerate(self._film.instructions):
            at += i is not None
            storage = self._film.unwritten.get(n)
            if storage is None:
                continue
            key = key_of(self._film.launched.slots[self._film.cores[n]], storage)
            if key in seen and key in self._tensors:
                found.append([at, self._tensors[key]])
            seen.add(key)
        return found

    def pictures(self) -> tuple[list[Picture], list[int]]:
        """All pictures, and of what each is: an operand, or -1 - the tensor at the beginning."""
        pictures, of = [*self._initial.values()], [-1 - n for n in self._initial]
        first, writes = self.arrays["first"], self.arrays["writes"]
        for number, found in self._film.pictures.items():
            step = self.steps[number]
            written = range(int(first[step]), int(first[step + 1]))
            pictures += found
            of += [o for o in written if writes[o]]
        return pictures, of

    def positions(self, timeline: Timeline) -> np.ndarray:
        """By step, its place among what its core executed in a timeline; -1 if they don't fit."""
        found = np.full(len(self.steps), -1, np.int32)
        for core, executed in enumerate(timeline.cores):
            ordinals, at = [i.ordinal for i in executed.graph.executed], 0
            for number, step in self.steps.items():
                if self._film.cores[number] != core:
                    continue
                ordinal = self._film.at(number).ordinal
                if at < len(ordinals) and ordinals[at] == ordinal:
                    at += 1
                elif not at or ordinals[at - 1] != ordinal:
                    break
                found[step] = at - 1
        return found


def _number(numbers: dict[Any, int], one: Any) -> int:
    return numbers.setdefault(one, len(numbers))


def run_lengths(lines: np.ndarray) -> list[list[Any]]:
    """What is carried out again and again, as run lengths.

    Returns:
        [place of the first round, its length, rounds, the run lengths within a round], where places
        count from the beginning of `lines`.
    """
    found: list[list[Any]] = []
    following = np.full(len(lines), -1, np.int64)
    seen: dict[int, int] = {}
    for n in range(len(lines) - 1, -1, -1):
        following[n] = seen.get(lines[n], -1)
        seen[lines[n]] = n
    at = 0
    while at < len(lines):
        length = int(following[at]) - at
        rounds = _rounds(lines, at, length) if 0 < length <= 4096 else 1
        if rounds < LEAST:
            at += 1
            continue
        found.append([at, length, rounds, run_lengths(lines[at : at + length])])
        at += length * rounds
    return found


def _rounds(lines: np.ndarray, at: int, length: int) -> int:
    once, rounds = lines[at : at + length], 1
    while np.array_equal(lines[at + rounds * length : at + (rounds + 1) * length], once):
        rounds += 1
    return rounds


def packed_pictures(pictures: Sequence[Picture], of: Sequence[int]) -> dict[str, np.ndarray]:
    """Pictures as columns; values byte by byte: first bytes, second bytes, ..."""
    odd = [p.odd | 4 * (p.values.dtype.kind == "i") | 8 * (p.values.dtype.kind == "u")
           for p in pictures]  # fmt: skip
    ranges = np.array([(p.low, p.high) for p in pictures], np.float64).reshape(-1, 2)
    sizes = np.array([(*p.shape, *p.every) for p in pictures], np.uint32).reshape(-1, 4)
    flat = [p.values.reshape(-1).view(np.uint32) for p in pictures]
    values = np.concatenate(flat) if flat else np.empty(0, np.uint32)
    with np.errstate(over="ignore"):
        return {
            "low": ranges[:, 0].astype(np.float32),
            "high": ranges[:, 1].astype(np.float32),
            "of": np.array(of, np.int32),
            **dict(zip(("rows", "columns", "down", "across"), sizes.T)),
            "odd": np.array(odd, np.uint8),
            "values": np.ascontiguousarray(values.view(np.uint8).reshape(-1, 4).T).reshape(-1),
        }
