"""The envelope of everything this package writes down: magic, version, checksum, msgpack body.

    magic (4 bytes) | format version (u16) | crc32 of all that follows (u32) |
    length of the producer's version (u8) | producer's version (UTF-8) | body (msgpack)

Invariant: reading never runs code and never allocates more than a small multiple of the input; any
damage is a `ProgramFormatError`. The checksum finds accidents, not attackers: what the body says is
checked again by whoever reads it.

Not modelled: compression (object stores and file systems do that), reading other format versions.
"""

from __future__ import annotations

import struct
import zlib
from functools import lru_cache
from importlib import metadata
from types import MappingProxyType
from typing import Any, Final, NoReturn

import msgpack

from nki_dist.errors import ProgramFormatError

FORMAT_VERSION: Final = 2
"""Raised by every change of the body's layout, so that old readers refuse new files by number."""

_HEADER: Final = struct.Struct("<4sHI")
PROGRAM: Final = b"NKIP"
COMPILED: Final = b"NKIC"
_KINDS: Final = MappingProxyType({PROGRAM: "a program", COMPILED: "a compiled kernel"})


@lru_cache(maxsize=1)
def _producer() -> bytes:
    try:
        return metadata.version("nki_dist").encode()
    except metadata.PackageNotFoundError:  # run from a checkout that was never installed
        return b"unknown"


def malformed(what: str) -> NoReturn:
    raise ProgramFormatError(f"malformed program: {what}")


def unwritable(what: str, **numbers: int) -> NoReturn:
    raise ProgramFormatError(what, code="program-unwritable", numbers=numbers)


def pack(magic: bytes, body: Any) -> bytes:
    """Wrap a body of plain values (None, bool, int, float, str, bytes, lists and dicts).

    Raises:
        ProgramFormatError: msgpack can't hold a value, such as a text with lone surrogates.
    """
    try:
        packed = msgpack.packb(body, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        unwritable(f"the program can't be written down: {error}")
    producer = _producer()
    rest: bytes = bytes([len(producer)]) + producer + packed
    return _HEADER.pack(magic, FORMAT_VERSION, zlib.crc32(rest)) + rest


def unpack(magic: bytes, data: bytes) -> Any:
    """The body of `data`, which must be of the kind `magic` says.

    Raises:
        ProgramFormatError: anything else than an intact envelope of this format version.
    """
    expected = _KINDS[magic]
    if not isinstance(data, (bytes, bytearray, memoryview)):
        malformed(f"{expected} is bytes, got {type(data).__name__}")
    if len(data) < _HEADER.size + 1:
        malformed(f"{len(data)} bytes; the header alone has {_HEADER.size + 1}: truncated")
    found, version, crc = _HEADER.unpack_from(data)
    if found != magic:
        other = _KINDS.get(found)
        malformed(
            f"it starts with {found!r}, {expected} starts with {magic!r}"
            + (f"; this is {other}" if other else "")
        )
    rest = memoryview(data)[_HEADER.size :]
    producer = bytes(rest[1 : 1 + rest[0]]).decode("utf-8", "replace")
    if version != FORMAT_VERSION:
        raise ProgramFormatError(
            f"format version {version}, written by nki_dist {producer}; this one reads only "
            f"version {FORMAT_VERSION}: compile the kernel again",
            code="program-version",
            numbers={"got": version, "allowed": FORMAT_VERSION},
        )
    actual = zlib.crc32(rest)
    if actual != crc:
        malformed(f"checksum {actual:#010x}, the header says {crc:#010x}: damaged or truncated")
    return _unpacked(rest[1 + rest[0] :])


def _unpacked(packed: memoryview) -> Any:
    try:
        # msgpack bounds every length by the size of its input, and nesting by its own stack.
        return msgpack.unpackb(packed, raw=False, strict_map_key=True)
    except (ValueError, TypeError, RecursionError) as error:
        malformed(f"its body is no msgpack ({type(error).__name__}: {error})")
