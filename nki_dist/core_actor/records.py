"""Turns messages between processes into bytes for a queue in shared memory, and back.

What repeats from message to message (description, channel and kernel line; types and shapes of the
payload) is sent once and then named by a number, so a record is a fixed head and the payload.
Payloads up to INLINE bytes are in the record; of larger ones it says where in shared memory they
lie (`Extent`), and which byte of the sender to clear when they are done with.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from nki_dist.collectives.party import Bundle
from nki_dist.runtime.messages import Message

INLINE: Final = 16 << 10
NAMES: Final = 4096  # numbers for what repeats; then the oldest is given anew

# length, kind, name of the description, name of the layout, byte to clear; launch, sequence, number
# of the operation, source, target
_HEAD: Final = struct.Struct("=IHHHxxIqqqii")
_PLACE: Final = struct.Struct("=iQ")
_NOTHING, _INLINE, _SHARED, _OBJECT, _DEFINITION = range(5)
_NO_NUMBER: Final = -1
COMMON: Final = -1  # no process's: the memory that all have


class Extent(NamedTuple):
    """Where an array lies: in the stacks of which process, or in what is COMMON, and how far in."""

    owner: int
    offset: int


def parts(payload: Any) -> tuple[np.ndarray, ...] | None:
    """The arrays of a payload; None if it is something else."""
    if type(payload) is np.ndarray:
        return (payload,)
    return payload.arrays if type(payload) is Bundle else None


class Encoder:
    """Writes messages to one ring.

    Args:
        put: appends a record to the ring, counted as a message or not; False if it is full.
    """

    def __init__(self, put: Callable[[bytes, bool], bool]) -> None:
        self._put = put
        # By key, number and thing, the oldest first; the identity of a thing may be its key.
        self._described: dict[Any, tuple[int, Any]] = {}
        self._layouts: dict[Any, tuple[int, Any]] = {}

    def write(self, m: Message, launch: int, places: tuple[Extent, ...] | None, byte: int) -> bool:
        """Append a message; False if the ring is full.

        Args:
            places: where the arrays of the payload lie, or None to put them into the record.
            byte: of the sender that the receiver clears when it doesn't need the places any more.
        """
        description = (m.channel, m.what, m.location)
        name = self._name(self._described, (id(m.what), m.channel), description, 0)
        if name is None:
            return False
        arrays, layout, body, kind = parts(m.payload), 0, b"", _NOTHING
        if arrays is not None:
            key = (type(m.payload) is Bundle, tuple([(a.dtype, a.shape) for a in arrays]))
            found = self._name(self._layouts, key, key, 1)
            if found is None:
                return False
            layout = found
            if places is None:
                kind = _INLINE
                body = b"".join([a.tobytes() for a in arrays])
            else:
                kind = _SHARED
                body = b"".join([_PLACE.pack(*place) for place in places])
        elif m.payload is not None:
            kind, body = _OBJECT, pickle.dumps(m.payload)
        number = _NO_NUMBER if m.number is None else m.number
        head = _HEAD.pack(
            _HEAD.size + len(body),
            kind,
            name,
            layout,
            byte,
            launch,
            m.sequence,
            number,
            m.source,
            m.target,
        )
        return self._put(head + body, True)

    def _name(
        self, names: dict[Any, tuple[int, Any]], key: Any, thing: Any, table: int
    ) -> int | None:
        """The number of a thing, which the receiver knows already or is told now."""
        if (found := names.get(key)) is not None:
            return found[0]
        oldest = next(iter(names)) if len(names) == NAMES else None
        number = len(names) if oldest is None else names[oldest][0]
        body = pickle.dumps(thing)
        head = _HEAD.pack(_HEAD.size + len(body), _DEFINITION, number, table, 0, 0, 0, 0, 0, 0)
        if not self._put(head + body, False):
            return None
        if oldest is not None:
            del names[oldest]
        names[key] = number, thing
        return number


class Decoder:
    """Reads what one Encoder wrote.

    Args:
        claim: the bytes at some places, given with their sizes, as arrays; None if some of that
            memory isn't mapped yet. When the arrays are gone it clears the sender's byte.
    """

    def __init__(self, claim: Callable[[list[tuple[Extent, int]], int], Any]) -> None:
        self._claim = claim
        self._tables: tuple[dict[int, Any], dict[int, Any]] = ({}, {})

    def read(self, record: bytes, launch: int) -> tuple[bool, Message | None]:
        """(whether the record is done with, its message if it has one of this launch)."""
        _, kind, name, layout, byte, of, sequence, number, source, target = _HEAD.unpack_from(
            record
        )
        if kind == _DEFINITION:
            self._tables[layout][name] = pickle.loads(record[_HEAD.size :])
            return True, None
        if of != launch:
            return of < launch, None
        payload: Any = None
        if kind == _OBJECT:
            payload = pickle.loads(record[_HEAD.size :])
        elif kind != _NOTHING:
            bundled, members = self._tables[1][layout]
            arrays = (_inline if kind == _INLINE else self._shared)(record, members, byte)
            if arrays is None:
                return False, None
            payload = Bundle(tuple(arrays)) if bundled else arrays[0]
        channel, what, location = self._tables[0][name]
        which = None if number == _NO_NUMBER else number
        return True, Message(source, target, channel, sequence, payload, what, location, which)

    def _shared(self, record: bytes, members: Any, byte: int) -> list[np.ndarray] | None:
        extents = []
        for n, (dtype, shape) in enumerate(members):
            place = Extent(*_PLACE.unpack_from(record, _HEAD.size + n * _PLACE.size))
            extents.append((place, dtype.itemsize * prod(shape)))
        raw = self._claim(extents, byte)
        if raw is None:
            return None
        return [r.view(dtype).reshape(shape) for r, (dtype, shape) in zip(raw, members)]


def _inline(record: bytes, members: Any, byte: int) -> list[np.ndarray]:
    arrays, at = [], _HEAD.size
    for dtype, shape in members:
        array: np.ndarray = np.ndarray(shape, dtype, record, at)
        arrays.append(array)
        at += array.nbytes
    return arrays
