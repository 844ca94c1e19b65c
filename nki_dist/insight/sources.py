"""What a walk back ends at: arguments, constants, memory that nobody wrote, state at first."""

from __future__ import annotations

import numpy as np

from nki_dist.insight.replay import Key, Launched, key_of
from nki_dist.insight.steps import Source, index_in
from nki_dist.program import Storage


class Sources:
    """Sources found so far, one for each memory; a memory's elements add up."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._places: dict[Key, np.ndarray] = {}
        self._sources: dict[Key, Source] = {}
        self._storages: dict[Key, Storage] = {}

    def all(self) -> list[Source]:
        """All of them, in the order in which they were met."""
        return list(self._sources.values())

    def add(self, key: Key, places: np.ndarray) -> Source:
        """Note that these bytes of a memory were read."""
        storage = self._storage(key)
        if storage is None:
            kind, slot = key[0], self._launched.slots[key[1]]
            name = f"{kind} {key[2]}"
            return self._sources.setdefault(key, Source("state", name, slot.rank, count=1))
        before = self._places.get(key)
        if before is not None:
            places = np.union1d(before, places)
        self._places[key] = places
        made = self._described(key, storage, places)
        kept = self._sources.setdefault(key, made)
        vars(kept).update(vars(made))
        return kept

    def _described(self, key: Key, storage: Storage, places: np.ndarray) -> Source:
        elements = np.unique(places // storage.dtype.itemsize)
        index = index_in(storage, int(places[0]))
        rank, name = self._rank(key), storage.title
        if storage.role == "input":
            signature = self._launched.compiled.inputs[storage.index]
            array = self._launched.inputs[rank][storage.index]
            values = np.ascontiguousarray(array).reshape(-1)[elements]
            return Source("argument", signature.name, rank, index, elements.size, values)
        if storage.role == "constant":
            data = np.frombuffer(storage.data or b"", storage.dtype.dtype)
            return Source("constant", name, rank, index, elements.size, data[elements])
        return Source("unwritten", name, rank, index, elements.size)

    def _rank(self, key: Key) -> int:
        role, number, _ = key
        return self._launched.slots[number].rank if role == "local" else int(number)

    def _storage(self, key: Key) -> Storage | None:
        if not self._storages:
            for slot in self._launched.slots:
                for s in self._launched.program(slot.core).storages:
                    self._storages[key_of(slot, s)] = s
        return self._storages.get(key)
