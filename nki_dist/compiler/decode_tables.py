"""Reading a program's tables: storages, access patterns, accesses, locations.

Invariant: whatever these functions return is consistent. Numbers are in range, storages fit the
platform's memories, and every access stays inside its storage, so that linking can map it without
looking. Not checked here: which instruction may use what (see `decode_body`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple

from nki_dist.arch import Arch
from nki_dist.compiler.encode import CALLED, PLACED, WRITTEN
from nki_dist.compiler.passes.allocate import in_time
from nki_dist.compiler.values import data_type
from nki_dist.compiler.wire import malformed
from nki_dist.dtypes import DType
from nki_dist.program import Access, Dynamic, MemoryRegion, Program, Storage, VirtualRegister
from nki_dist.program.access import reach

MAX_RANK: Final = 32  # dimensions of a shape; NumPy 1 has no more
MAX_REGISTERS: Final = 1 << 20
INT64: Final = 1 << 63
MAX_STRIDE: Final = 1 << 48  # even of dimensions of size 1: in bytes it must fit 64 bits
MAX_REACH: Final = 1 << 60  # bytes; addresses that are worked out at run time must fit 64 bits
REGIONS: Final = frozenset(region.value for region in MemoryRegion)
ROLES: Final = frozenset({"input", "shared", "constant", "local"})


class Pattern(NamedTuple):
    """A shape with strides and what is the same for all accesses that have it.

    Attributes:
        low, high: first and one-past-last byte, relative to the access's offset.
        row_low, row_high: the same for its first row, which is what a vector offset moves.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    low: int
    high: int
    row_low: int
    row_high: int


def integer(value: Any, low: int, high: int, what: str) -> int:
    """`value` if it is an int in [low, high)."""
    if type(value) is not int or not low <= value < high:
        malformed(f"{what} is {value!r}; allowed: {low} to {high - 1}")
    return value


def text(value: Any, what: str) -> str:
    if type(value) is not str:
        malformed(f"{what} is {value!r}; allowed: a text")
    return value


def sequence(value: Any, what: str) -> list[Any]:
    if type(value) is not list:
        malformed(f"{what} is of type {type(value).__name__}; allowed: a list")
    return value


def integers(value: Any, what: str, every: int = 1) -> list[int]:
    """A flat list of ints whose length is a multiple of `every`."""
    found = sequence(value, what)
    if not set(map(type, found)) <= {int} or len(found) % every:
        malformed(f"{what} holds something else than groups of {every} ints")
    return found


def sizes(value: Any, low: int, what: str) -> tuple[int, ...]:
    """A shape or strides: 1 to MAX_RANK ints, none below `low`."""
    found = integers(value, what)
    if not 1 <= len(found) <= MAX_RANK or min(found) < low or max(found) >= MAX_STRIDE:
        malformed(f"{what} {found}; allowed: 1 to {MAX_RANK} ints from {low} to {MAX_STRIDE - 1}")
    return tuple(found)


def numbered(table: Sequence[Any], what: str) -> Callable[[Any], Any]:
    """Gives the entries of a table by their numbers."""
    return lambda number: table[integer(number, 0, len(table), what)]


class Tables:
    """The tables of one program, each read after those that it refers to.

    Attributes:
        program: without its instructions, outputs and facts.
        kinds: for each kind of storage (its memory, shape, dtype and role), one that isn't in the
            program.
        kind_of: for each storage, the number of its kind.
        keys: for each access, a number that stands for its pattern and kind of storage.
    """

    def __init__(self, body: dict[str, Any], arch: Arch) -> None:
        self.body, self.arch = body, arch
        self.texts = sequence(body["texts"], "the table of texts")
        if not set(map(type, self.texts)) <= {str}:
            malformed("the table of texts holds something else")
        lines = self._locations()
        cores = integer(body["cores"], 1, arch.max_lnc + 1, "the number of cores")
        core = integer(body["core"], 0, cores, "the core")
        count = integer(body["registers"], 0, MAX_REGISTERS + 1, "registers")
        self.program = Program(text(body["kernel"], "kernel"), arch.name, core, cores)
        self.program.registers, self.program.locations = count, lines
        self.kinds = [_kind(k, arch) for k in sequence(body["kinds"], "the table of storage kinds")]
        self.storages = self.program.storages
        self._storages()
        self.registers = [VirtualRegister(n) for n in range(count)]
        rows = sequence(body["patterns"], "the table of patterns")
        self.patterns = [_pattern(row, arch) for row in rows]
        self.accesses: list[Access] = []
        self.keys: list[int] = []
        self._accesses()

    def _locations(self) -> list[tuple[str, int, str]]:
        flat = integers(self.body["locations"], "the table of locations", 3)
        table, n, found = self.texts, len(self.texts), []
        for file, line, function in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
            if not (0 <= file < n and 0 <= function < n and 0 <= line < INT64):
                malformed(f"location ({file}, {line}, {function}); there are {n} texts")
            found.append((table[file], line, table[function]))
        return found

    # ---- storages ---------------------------------------------------------------------------

    def _storages(self) -> None:
        flat = integers(self.body["storages"], "the table of storages", 6)
        kinds, table, lines = self.kinds, self.texts, len(self.program.locations)
        self.kind_of = flat[::6]
        columns = zip(*(flat[column::6] for column in range(6)), strict=True)
        for number, (kind, name, first, last, location, flags) in enumerate(columns):
            if not (0 <= kind < len(kinds) and 0 <= name < len(table) and 0 <= flags < 8):
                malformed(f"storage {number} of kind {kind} with name {name} and flags {flags}")
            if not (-1 <= location < lines and -1 <= first <= last < INT64):
                malformed(
                    f"storage {number} lives from instruction {first} to {last} at {location}"
                )
            k = kinds[kind]
            s = Storage(number, k.region, k.shape, k.dtype, table[name], k.role, -1, None, location)
            s.first, s.last = first, last
            if flags & CALLED:
                s.name, s.called = "", s.name
            s.placed, s.written = bool(flags & PLACED), bool(flags & WRITTEN)
            self.storages.append(s)
        self._indices()
        self._addresses()
        self._data()
        self._peak()

    def _groups(self, field: str, every: int) -> Any:
        """Rows of a flat table whose first column numbers storages, ascending, with these."""
        flat, storages = integers(self.body[field], f"the table of {field}", every), self.storages
        numbers = flat[::every]
        if numbers and (numbers[0] < 0 or numbers[-1] >= len(storages)):
            malformed(f"the table of {field} names a storage beyond {len(storages) - 1}")
        if any(a >= b for a, b in pairwise(numbers)):
            malformed(f"the table of {field} isn't in the order of storages")
        columns = (flat[column::every] for column in range(1, every))
        return zip((storages[n] for n in numbers), *columns, strict=True)

    def _indices(self) -> None:
        for s, index in self._groups("indices", 2):
            s.index = integer(index, 0, INT64, "an argument's or allocation's index")
        seen = set()
        for s in self.storages:
            if s.role == "local":
                if s.index != -1:
                    malformed(f"local storage {s.number} has index {s.index}")
                continue
            key = (s.role == "input", s.index)
            if s.index < 0 or key in seen:
                malformed(f"{s.label} ({s.role}) has no index of its own: {s.index}")
            seen.add(key)

    def _addresses(self) -> None:
        for s, partition, byte in self._groups("addresses", 3):
            fits = partition >= 0 and 0 <= byte < INT64
            if s.region.on_chip:
                fits = fits and partition + s.partitions <= self.arch.partitions
                fits = fits and byte + s.partition_bytes <= _row_size(s.region, self.arch)
            if not fits:
                malformed(f"address ({partition}, {byte}) of {s.label} is outside its memory")
            s.address = (partition, byte)
        if any(s.placed and s.address is None for s in self.storages):
            malformed("a storage placed by the kernel has no address")

    def _data(self) -> None:
        rows = sequence(self.body["data"], "the table of constants")
        for row in rows:
            if type(row) is not list or len(row) != 2 or type(row[1]) is not bytes:
                malformed("an entry of the table of constants")
            s = numbered(self.storages, "a constant's storage")(row[0])
            if s.role != "constant" or s.data is not None or len(row[1]) != s.nbytes:
                malformed(
                    f"{len(row[1])} bytes of data for {s.label} ({s.role}) of {s.nbytes} bytes"
                )
            s.data = row[1]
        if len(rows) != sum(s.role == "constant" for s in self.storages):
            malformed("a constant without data")

    def _peak(self) -> None:
        """Refuse programs that would need more host memory than HBM has at any one time."""
        alive, most = 0, self.arch.hbm_stack_bytes
        for s, ended in in_time(s for s in self.storages if s.role == "local"):
            alive += s.nbytes - sum(over.nbytes for over in ended)
            if alive > most:
                malformed(f"{alive} bytes of local tensors are alive at once; HBM has {most}")

    # ---- accesses ---------------------------------------------------------------------------

    def _accesses(self) -> None:
        columns = sequence(self.body["accesses"], "the table of accesses")
        if len(columns) != 3:
            malformed(f"the table of accesses has {len(columns)} columns; allowed: 3")
        where, offsets, which = (integers(c, "a column of the table of accesses") for c in columns)
        if not len(where) == len(offsets) == len(which):
            malformed("the columns of the table of accesses differ in length")
        moving = self._dynamics(len(where))
        partitions = self.arch.partitions
        sizes = [(k.nbytes, partitions if k.region.on_chip else INT64) for k in self.kinds]
        storages, kind_of, shapes = self.storages, self.kind_of, self.patterns
        accesses, keys = self.accesses, self.keys
        for at, (number, offset, pattern) in enumerate(zip(where, offsets, which, strict=True)):
            if not (0 <= number < len(storages) and 0 <= pattern < len(shapes)):
                malformed(f"an access to storage {number} with pattern {pattern}")
            s, kind = storages[number], kind_of[number]
            shape, strides, dtype, low, high, row_low, row_high = shapes[pattern]
            dynamic = moving.get(at) if moving else None
            if dynamic is not None:
                dynamic.source = self._source(dynamic.source)
                if dynamic.kind == "vector":  # rows are checked when their numbers are known
                    low, high = row_low, row_high
                elif dynamic.kind == "scalar" and not dynamic.within and s.region.is_hbm:
                    # Addresses are checked at run time; they only have to be numbers.
                    low, high = -max(offset, -MAX_STRIDE) * dtype.itemsize, 0
            start = offset * dtype.itemsize
            size, rows = sizes[kind]
            if start + low < 0 or start + high > size or shape[0] > rows:
                malformed(
                    f"an access of shape {shape}, strides {strides} and dtype {dtype} at offset "
                    f"{offset} leaves {s.label}"
                )
            accesses.append(Access(s, offset, shape, strides, dtype, dynamic))
            keys.append(pattern * len(sizes) + kind)
            if dynamic is not None:
                _check_dynamic(accesses[-1])

    def _dynamics(self, count: int) -> dict[int, Dynamic]:
        """The run-time parts by access; the source is still a number."""
        found: dict[int, Dynamic] = {}
        for row in sequence(self.body["dynamics"], "the table of run-time addresses"):
            if type(row) is not list or len(row) not in (6, 9, 10):
                malformed("an entry of the table of run-time addresses")
            number, kind, source, stride, limit, dim, *rest = row
            integer(number, 0, count, "the access of a run-time address")
            if kind not in ("scalar", "vector", "tensor") or number in found:
                malformed(f"a run-time address of kind {kind!r} for access {number}")
            integer(source, -MAX_REGISTERS, number, "the source of a run-time address")
            integer(stride, -MAX_STRIDE, MAX_STRIDE, "the stride of a run-time address")
            integer(limit, -MAX_STRIDE, MAX_STRIDE, "the limit of a run-time address")
            integer(dim, 0, MAX_RANK, "the dimension of a run-time address")
            for n in rest:
                integer(n, -MAX_STRIDE, MAX_STRIDE, "the dimension of a run-time address")
            places: Any = tuple(rest[:3]) or None
            within, extent = (places, None) if len(rest) <= 3 else (None, places)
            found[number] = Dynamic(kind, source, stride, limit, dim, within, extent)
        return found

    def _source(self, number: int) -> Any:
        if number >= 0:
            return self.accesses[number]
        if ~number >= len(self.registers):
            malformed(f"register {~number}; the program has {len(self.registers)}")
        return self.registers[~number]


def _kind(row: Any, arch: Arch) -> Storage:
    """A storage that stands for all of its kind."""
    if len(sequence(row, "a storage kind")) != 4:
        malformed(f"a storage kind has {len(row)} parts; allowed: 4")
    region_name, role = text(row[0], "a memory"), text(row[3], "a role")
    if region_name not in REGIONS or role not in ROLES:
        malformed(f"a storage in memory {region_name!r} with role {role!r}")
    region, shape = MemoryRegion(region_name), sizes(row[1], 1, "shape")
    dtype = data_type(row[2])
    kind = Storage(-1, region, shape, dtype, role=role)
    shown = f"a {region_name} storage of shape {shape} and dtype {dtype}"
    if role != "local" and region is not MemoryRegion.shared_hbm:
        malformed(f"{shown} with role {role}, which lives in shared_hbm")
    if kind.nbytes > arch.hbm_stack_bytes:
        malformed(f"{shown} is larger than HBM ({arch.hbm_stack_bytes} bytes on {arch.name})")
    rows, size = arch.partitions, _row_size(region, arch)
    if region.on_chip and (len(shape) < 2 or shape[0] > rows or kind.partition_bytes > size):
        malformed(f"{shown} doesn't fit {arch.name}: {rows} partitions of {size} bytes")
    return kind


def _row_size(region: MemoryRegion, arch: Arch) -> int:
    """Bytes that a partition has."""
    psum = region is MemoryRegion.psum
    return arch.psum_partition_bytes if psum else arch.sbuf_partition_bytes


def _pattern(row: Any, arch: Arch) -> Pattern:
    if len(sequence(row, "an access pattern")) != 3:
        malformed(f"an access pattern has {len(row)} parts; allowed: 3")
    dtype = data_type(row[0])
    shape, strides = sizes(row[1], 0, "shape"), sizes(row[2], -MAX_STRIDE, "strides")
    if len(shape) != len(strides):
        malformed(f"shape {shape} with strides {strides}")
    size = dtype.itemsize
    if prod(shape) * size > arch.hbm_stack_bytes:
        malformed(f"an access of shape {shape} and dtype {dtype} is larger than HBM")
    low, high = (n * size for n in reach(shape, strides))
    row_low, row_high = (n * size for n in reach(shape[1:], strides[1:]))
    high, row_high = high + size, row_high + size
    if high - low > MAX_REACH:
        malformed(
            f"an access of shape {shape} and strides {strides} reaches over {high - low} bytes"
        )
    if 0 in shape:  # no element at all; only its place has to exist
        low = high = row_low = row_high = 0
    return Pattern(shape, strides, dtype, low, high, row_low, row_high)


def _check_dynamic(a: Access) -> None:
    """A run-time address is one that the language can make, so that linking can resolve it."""
    dynamic = a.dynamic
    assert dynamic is not None
    source, kind = dynamic.source, dynamic.kind
    if abs(dynamic.stride) * max(dynamic.limit, 1) * a.dtype.itemsize > MAX_REACH:
        malformed(f"{dynamic.limit} places, {dynamic.stride} elements apart, in {a.storage.label}")
    if isinstance(source, Access):
        if source.dynamic is not None or 0 in source.shape:
            malformed("an index tensor that is empty or itself indexed at run time")
        if kind == "scalar" and source.size != 1:
            malformed(f"a scalar offset with {source.size} elements; allowed: 1")
        if kind == "vector" and not (
            source.region.on_chip and (source.free_size == 1 or len(source.shape) == 2)
        ):
            malformed(f"a vector offset of shape {source.shape} in {source.region.value}")
        if kind == "tensor" and not (
            len(a.shape) == len(source.shape) == 2
            and source.region.value == "sbuf"
            and not source.dtype.is_float
            and source.size >= a.shape[1]
        ):
            malformed(f"{source.shape} offsets for an access of shape {a.shape}")
    elif kind != "scalar":
        malformed(f"a register as the source of a {kind} offset")
    if kind == "vector" and not (a.region.is_hbm and dynamic.stride >= 1 and dynamic.limit >= 1):
        malformed(
            f"a vector offset with stride {dynamic.stride} and limit {dynamic.limit} into "
            f"{a.storage.label}"
        )
