"""The check of races against one that goes element by element, on random accesses."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes, errors
from nki_dist.program import Access, Dynamic, instructions
from nki_dist.runtime.races import check_races
from nki_dist.runtime.recorder import Record, compact, pattern_of

SIZE = 96  # bytes of the tensor
TYPES = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)


def lines(x):
    """Instructions for messages to name."""
    out = nl.ndarray((SIZE // 2,), dtype=nl.uint16, buffer=nl.shared_hbm, name="out")
    nisa.dma_copy(dst=out, src=x)
    nisa.dma_copy(dst=out, src=x)
    nisa.dma_copy(dst=out, src=x)
    nisa.dma_copy(dst=out, src=x)
    return out


@pytest.fixture(scope="module")
def compiled():
    with nki.World(lnc=2, host="inprocess") as world:
        return world.compile(nki.jit(lines), np.zeros(SIZE // 2, np.uint16))


def strided(rng, storage, dtype):
    """A random access, and the first byte of each element in its order."""
    count = SIZE // dtype.itemsize
    while True:
        shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 4)))
        strides = tuple(int(s) for s in rng.choice([-8, -3, -2, -1, 0, 1, 2, 3, 4, 8], len(shape)))
        moved = [
            sum(at * s for at, s in zip(index, strides)) for index in product(*map(range, shape))
        ]
        room = count - (max(moved) - min(moved))
        if room > 0:
            offset = int(rng.integers(room)) - min(moved)
            places = [(offset + m) * dtype.itemsize for m in moved]
            return Access(storage, offset, shape, strides, dtype), None, places


def scattered(rng, storage, dtype):
    """A random access whose rows a vector offset chooses, some of them outside."""
    size, count = dtype.itemsize, SIZE // dtype.itemsize
    shape = tuple(int(n) for n in rng.integers(1, 4, rng.integers(2, 4)))
    strides = (0, *(int(s) for s in rng.integers(1, 4, len(shape) - 1)))
    offset, stride, limit = (int(rng.integers(low, 5)) for low in (0, 1, 1))
    limit *= 3
    index = rng.integers(-1, limit + 1, (shape[0], 1))
    a = Access(storage, offset, shape, strides, dtype, Dynamic("vector", None, stride, limit))
    places = []
    run = shape[-1] if strides[-1] == 1 else 1  # is inside as a whole or not at all
    for row in index[:, 0].tolist():
        elements = [
            offset + row * stride + sum(at * s for at, s in zip(within, strides[1:]))
            for within in product(*map(range, shape[1:]))
        ]
        for n in range(0, len(elements), run):
            if 0 <= row < limit and elements[n] >= 0 and elements[n] + run <= count:
                places += [e * size for e in elements[n : n + run]]
    return a, index, places


def accesses_of(rng, storage):
    """What two cores do, one access after the other, as records and as plain numbers.

    Returns:
        records: of each core.
        plain: of each core (ordinal, itemsize, places, values before, values after or None), where
            values are the bytes of each element.
    """
    ordinals = rng.integers(0, 4, 8)
    memory = rng.integers(0, 2, SIZE).astype(np.uint8)
    records, plain = {0: [], 1: []}, ([], [])
    sizes = rng.choice(4, rng.integers(1, 3))  # in most tensors elements have one size
    low = rng.random()
    for n in range(int(rng.integers(2, 7))):
        core, dtype = n % 2, TYPES[rng.choice(sizes)]
        make = scattered if rng.random() < 0.3 else strided
        a, index, places = make(rng, storage, dtype)
        kit = SimpleNamespace(view=lambda source, index=index: index)
        size, pattern = dtype.itemsize, pattern_of(a, kit)
        bits = pattern.get(memory, size, 0, f"u{size}").copy()
        assert bits.tobytes() == b"".join(memory[p : p + size].tobytes() for p in places)
        before = [memory[p : p + size].tolist() for p in places]
        record = Record(storage.key, 0, int(ordinals[n]), pattern, compact(bits))
        after = None
        if rng.random() < 0.6:
            new = rng.integers(0, 256, len(places) * size) < 256 * low
            for place, element in zip(places, new.astype(np.uint8).reshape(-1, size)):
                memory[place : place + size] = element
            after = [memory[p : p + size].tolist() for p in places]
            record.after = compact(pattern.get(memory, size, 0, f"u{size}"))
        records[core].append(record)
        plain[core].append((int(ordinals[n]), size, places, before, after))
    return records, plain


def cells_of(access, values, unit):
    """(number, bytes) of every cell of an access, in its order."""
    _, size, places, *_ = access
    for place, element in zip(places, values):
        for n in range(0, size, unit):
            yield (place + n) // unit, tuple(element[n : n + unit])


def taken(stores, unit):
    """By cell: the value that is left, the one that was there first, the last that stored."""
    found = {}
    for access in stores:
        ordinal, _, _, before, after = access
        old = dict(cells_of(access, before, unit))
        for cell, value in cells_of(access, after, unit):
            first = found[cell][1] if cell in found else old[cell]
            found[cell] = value, first, ordinal
    return found


def race_of(plain):
    """What the first race is: what, ordinal, core, the other's ordinal, byte, cells that differ."""
    if not all(plain):
        return None
    unit = min(size for side in plain for _, size, *_ in side)
    final = [taken([one for one in side if one[4] is not None], unit) for side in plain]
    differ = sorted(c for c in final[0].keys() & final[1] if final[0][c][0] != final[1][c][0])
    if differ:
        cell, bytes_of = differ[0], unit * len(differ)
        return "store", final[0][cell][2], 0, final[1][cell][2], cell * unit, bytes_of
    for core, side in enumerate(plain):
        for n, access in enumerate(side):
            if access[4] is not None:
                continue
            mine = taken([one for one in side[:n] if one[4] is not None], unit)
            for cell, seen in cells_of(access, access[3], unit):
                if cell not in final[1 - core]:
                    continue
                value, before, theirs = final[1 - core][cell]
                if cell in mine and mine[cell][0] == value:
                    continue
                if seen != value or before != value:
                    return "load", access[0], core, theirs, cell * unit, 0
    return None


def message(compiled, race):
    """How the message begins, and how it ends where stores differ."""
    what, ordinal, core, theirs, byte, differing = race
    where = [
        {i.ordinal: f"(nisa.{i.opcode} at {p.where(i.location)})" for i in instructions(p.body)}
        for p in compiled.programs
    ]
    begin = (
        f"nothing orders a {what} by core {core} {where[core][ordinal]} and a store by core "
        f"{1 - core} {where[1 - core][theirs]}: both touch byte {byte} of "
    )
    both = "both cores run that line, and " * (where[core][ordinal] == where[1 - core][theirs])
    end = f"{both}{-(-differing // 2)} of {SIZE // 2} elements get different values"
    return begin, end if differing else ""


@pytest.mark.parametrize("seed", range(8))
def test_races_are_those_that_are_found_element_by_element(compiled, seed):
    rng = np.random.default_rng(seed)
    storage = next(s for s in compiled.programs[0].storages if s.role == "shared")
    found = {"store": 0, "load": 0, None: 0}
    for _ in range(600):
        records, plain = accesses_of(rng, storage)
        race = race_of(plain)
        found[race and race[0]] += 1
        if race is None:
            check_races(compiled, records, 0)
            continue
        with pytest.raises(errors.RaceError) as caught:
            check_races(compiled, records, 0)
        begin, end = message(compiled, race)
        assert caught.value.message.startswith(begin)
        assert caught.value.message.endswith(end)
    assert min(found.values()) > 30, found


def test_joined_patterns_and_their_cells_are_the_same_bytes(compiled):
    rng = np.random.default_rng(1)
    storage = next(s for s in compiled.programs[0].storages if s.role == "shared")
    for _ in range(1000):
        make = scattered if rng.random() < 0.3 else strided
        dtype = TYPES[rng.integers(4)]
        a, index, places = make(rng, storage, dtype)
        joined = pattern_of(a, SimpleNamespace(view=lambda source, index=index: index)).joined()
        wanted = np.zeros(SIZE, bool)
        for place in places:
            wanted[place : place + dtype.itemsize] = True
        touched = np.flatnonzero(wanted)
        low, end = (touched[0], touched[-1] + 1) if places else (0, 0)
        assert joined.span() == (low, end)
        unit = joined.unit(low)
        marks = np.zeros((end - low) // unit, bool)
        joined.put(True, marks, unit, low)
        np.testing.assert_array_equal(np.repeat(marks, unit), wanted[low:end])


def test_cells_of_halves_of_rows_are_halves_of_rows(compiled):
    """However large a tensor is, it is looked at in few cells."""
    storage = next(s for s in compiled.programs[0].storages if s.role == "shared")
    half = pattern_of(Access(storage, 12, (4, 6), (12, 1), dtypes.uint16), None).joined()
    assert half.unit(0) == half.unit(12) == 12


@nki.jit
def rows_in_a_loop(x):
    """Each core stores its own rows, one of them what nobody wrote, and first thing in a loop."""
    out = nl.ndarray((3, 5), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
    tile = nl.ndarray((1, 5), dtype=nl.float32, buffer=nl.sbuf, name="tile")
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out[0:1, :], src=x)
    else:
        for n in nl.dynamic_range(1, 3):
            nisa.dma_copy(dst=out[n, :], src=tile)
    return out


@pytest.mark.parametrize("host", ["inprocess", "debug"])
def test_where_a_tile_begins_to_live_its_first_instruction_isnt_carried_out(host):
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 5)
    with nki.World(lnc=2, host=host, check="unwritten=zero,release=0.6") as world:
        assert world.compile(rows_in_a_loop, x).programs[1].facts["watched"]
        (out,) = world.run(rows_in_a_loop, x)
    np.testing.assert_array_equal(out, np.concatenate([x, np.zeros((2, 5), np.float32)]))
