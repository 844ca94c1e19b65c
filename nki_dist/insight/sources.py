"""Collects what a number came from in the end: arguments, constants, memory that nobody wrote."""

from __future__ import annotations

import numpy as np

from nki_dist.insight.replay import Key, Launched, key_of
from nki_dist.insight.steps import Source, index_in


class Sources:
    """Sources found so far, one for each memory; a memory's elements add up."""

    def __init__(self, launched: Launched) -> None:
        self._launched = launched
        self._places: dict[Key, np.ndarray] = {}
        self._sources: dict[Key, Source] = {}
        self._storages = {
            key_of(slot, s): s
            for slot in launched.slots
            for s in launched.program(slot.core).storages
        }

    def all(self) -> list[Source]:
        """All of them, in the order in which they were met."""
        return list(self._sources.values())

    def add(self, key: Key, places: np.ndarray) -> Source:
        """Note that these bytes of a memory were read."""
        role, number, *_ = key
        local = role not in ("input", "shared", "constant")
        rank = self._launched.slots[number].rank if local else number
        storage = self._storages.get(key)
        if storage is None:
            source = Source("state", f"{role} {key[2]}", rank, count=1)
            return self._sources.setdefault(key, source)
        places = self._places[key] = np.union1d(self._places.get(key, places), places)
        elements = np.unique(places // storage.dtype.itemsize)
        kind, name, values = "unwritten", storage.title, np.empty(0)
        if role == "input":
            kind, name = "argument", self._launched.compiled.inputs[storage.index].name
            array = np.ascontiguousarray(self._launched.inputs[rank][storage.index])
            values = array.reshape(-1)[elements]
        elif role == "constant":
            kind = "constant"
            values = np.frombuffer(storage.data or b"", storage.dtype.dtype)[elements]
        source = self._sources.setdefault(key, Source(kind, name, rank))
        source.index, source.count = index_in(storage, int(places[0])), elements.size
        source.values = values
        source.elements, source.shape = elements, storage.shape
        return source
