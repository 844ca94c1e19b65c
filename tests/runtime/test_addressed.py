"""Instructions with run-time addresses: one step for all of them, and where that mustn't be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes import bfloat16, float32
from nki_dist.errors import OutOfBoundsError
from nki_dist.linking.addresses import inside, interval
from nki_dist.program import Access, Dynamic, Instruction, Storage, VirtualRegister, hbm, sbuf
from nki_dist.runtime import late

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

ROWS, COLUMNS = 9, 6


def table(dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(5).integers(-99, 99, (ROWS, COLUMNS)).astype(dtype)


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[Instruction]:
    """Copies that were linked, each time they were."""
    found: list[Instruction] = []
    for spec in (nisa.dma_copy, nisa.tensor_copy):
        meaning = spec.lower
        monkeypatch.setattr(
            spec, "lower", lambda i, kit, meaning=meaning: found.append(i) or meaning(i, kit)
        )
    return found


def run(kernel: Any, *arguments: Any) -> np.ndarray:
    """The result of two launches, which has to be the same."""
    with nki.World(ranks=1, host="inprocess", lnc=1) as world:
        (first,), (again,) = (world.run(kernel, *arguments) for _ in range(2))
    assert first.tobytes() == again.tobytes()
    return first


# ---- indices that are inside --------------------------------------------------------------------


def accesses(region: Any, rng: np.random.Generator) -> Access:
    """A small pattern anywhere in a tensor, moved by any number of elements."""
    storage = Storage(0, region, (7, 12), (bfloat16, float32)[rng.integers(2)])
    shape = tuple(int(n) for n in rng.integers(1, 4, 2))
    strides = int(rng.choice([12, 24, 0, 5])), int(rng.choice([1, 2, -1, 0]))
    start, _ = Access(storage, 0, shape, strides, storage.dtype).span()
    offset = -start // storage.dtype.itemsize + int(rng.integers(30))
    stride = int(rng.choice([1, 3, 12, 24, -1, -12, 0]))
    within = (None, (0, 5, 0))[rng.integers(2)]
    limit = int(rng.integers(1, 12))
    dynamic = Dynamic("scalar", VirtualRegister(0), stride, limit, within=within)
    return Access(storage, offset, shape, strides, storage.dtype, dynamic)


def partition(a: Access, index: int) -> int:
    """Where the first element lies that an index asks for; in HBM everything is one."""
    assert a.dynamic is not None
    size, row = a.dtype.itemsize, a.storage.partition_bytes
    return 0 if a.region is hbm else (a.offset + index * a.dynamic.stride) * size // row


@pytest.mark.parametrize("region", [hbm, sbuf])
def test_all_indices_of_an_interval_are_inside(region):
    rng, found = np.random.default_rng(2), 0
    for _ in range(2000):
        a = accesses(region, rng)
        bounds = interval(a)
        assert a.dynamic is not None
        good = [n for n in range(-99, 100) if inside(a, n)]
        if a.dynamic.stride % 12:  # else it moves by whole partitions
            good = [n for n in good if partition(a, n) == partition(a, 0)]
        if bounds is None:
            assert not good or a.dynamic.stride == 0
            continue
        least, most = bounds
        assert list(range(max(least, -99), min(most, 99) + 1)) == good
        found += 1
    assert found > 1000


# ---- what a step does ---------------------------------------------------------------------------


PATTERN = [[COLUMNS, 1], [1, COLUMNS]]


@nki.jit
def chosen(x, places, how):
    """Row n of the result is row `places[n]` of x, counted from the middle."""
    rows, columns = x.shape
    out = nl.ndarray((len(places), columns), dtype=x.dtype, buffer=nl.shared_hbm)
    wide = nl.ndarray((1, 3 * columns), dtype=x.dtype, buffer=nl.sbuf)
    for n in nl.dynamic_range(len(places)):
        place = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=place, src=places.ap([[1, 1], [1, 1]], scalar_offset=n))
        source = x.ap(PATTERN, rows // 2 * columns, scalar_offset=place)
        target = out.ap(PATTERN, scalar_offset=n)
        if how == "both":
            nisa.dma_copy(dst=target, src=source)
            continue
        tile = nl.ndarray((1, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source)
        if how == "on chip":
            start = nisa.register_alloc(place)
            nisa.tensor_copy(dst=wide[:, nl.ds(start, columns)], src=tile)
            nisa.tensor_copy(dst=tile, src=wide[:, nl.ds(start, columns)])
        nisa.dma_copy(dst=target, src=tile)
    return out


@pytest.mark.parametrize("without", ["", "addresses"])
@pytest.mark.parametrize("how, operands", [("both", 2), ("each", 3), ("on chip", 5)])
def test_nothing_is_linked_for_an_address(linked, how, operands, without, monkeypatch):
    monkeypatch.setenv("NKI_DIST_LINK_WITHOUT", without)
    x, places = table(), np.array([[3, 0, 1, 4, 3, 2, 0]], np.int32).T
    np.testing.assert_array_equal(run(chosen, x, places, how), x[ROWS // 2 + places[:, 0]])
    if without:
        assert len(linked) > 3 * operands
    else:
        assert len(linked) == operands  # once, for all addresses and launches


def test_indices_may_be_negative():
    x, places = table(), np.array([[-4, 4, -1, 0, -3]], np.int32).T
    np.testing.assert_array_equal(run(chosen, x, places, "both"), x[ROWS // 2 + places[:, 0]])


@pytest.mark.parametrize("how", ["both", "each"])
@pytest.mark.parametrize("bad", [5, -5])
def test_an_index_outside_is_the_error_it_was(how, bad):
    x, places = table(), np.array([[1, bad, 2]], np.int32).T
    with pytest.raises(OutOfBoundsError, match=rf"index {bad} is outside \[-4, 5\)") as caught:
        run(chosen, x, places, how)
    line = "dst=target, src=source" if how == "both" else "dst=tile, src=source"
    lines = Path(__file__).read_text().splitlines()
    assert str(caught.value.location).endswith(
        f"{Path(__file__).name}:{1 + next(n for n, of in enumerate(lines) if line in of)}"
    )
    assert caught.value.instruction == "nisa.dma_copy"


@nki.jit
def beside(x, places, mode):
    """Three elements of each row at a register's place, and from there."""
    out = nl.ndarray((len(x), 3), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, wide = nl.load(x[:, 0:3]), nl.load(x)
    place = nisa.register_alloc(nl.load(places))
    if mode == "to":
        nisa.tensor_copy(dst=wide[:, nl.ds(place, 3)], src=tile)
    else:
        nisa.tensor_copy(dst=tile, src=wide[:, nl.ds(place, 3)])
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("mode", ["to", "from"])
@pytest.mark.parametrize("bad", [-1, COLUMNS - 2])
def test_a_register_outside_is_the_error_it_was(mode, bad):
    with pytest.raises(OutOfBoundsError, match=rf"index {bad} is outside \[0, {COLUMNS - 2}\)"):
        run(beside, table(), np.array([[bad]], np.int32), mode)


def test_one_address_alone_is_linked_as_ever(linked):
    x = table()
    for _ in range(2):  # launches come back to it
        run(chosen, x, np.array([[2]], np.int32), "both")
    assert len(linked) == 2 * 2  # each world links both copies once


@nki.jit
def copied(x, places):
    """Copies of one form and of others: to other tiles and places, of other sizes and types."""
    columns = x.shape[1]
    out = nl.ndarray((5, 2, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    place = nisa.register_alloc(nl.load(places))
    tiles = [nl.ndarray((4, columns), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2)]
    for tile in tiles:
        nisa.memset(tile, 0)
    from_two = x.ap([[columns, 2], [1, columns]], 2 * columns, scalar_offset=place)
    from_three = x.ap([[columns, 2], [1, columns]], 3 * columns, scalar_offset=place)
    turned = x.ap([[1, 2], [2, columns]], 1, scalar_offset=place)
    nisa.dma_copy(dst=tiles[0][0:2], src=from_two)
    nisa.dma_copy(dst=tiles[0][2:4], src=from_three)
    nisa.dma_copy(dst=tiles[1][2:4], src=from_three)
    nisa.dma_copy(dst=tiles[1][0:2], src=turned)
    for pair in enumerate((tiles[0][0:2], tiles[0][2:4], tiles[1][2:4], tiles[1][0:2])):
        n, part = pair
        nl.store(out[n], part)
    half = nl.ndarray((2, columns), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=half, src=from_two)
    nisa.dma_copy(dst=tiles[0][0:2], src=half)
    nl.store(out[4], tiles[0][0:2])
    return out


@pytest.mark.parametrize("ranks", [1, 3])
def test_copies_of_one_form_are_at_their_own_places(ranks, linked):
    """Each is linked once, for all ranks."""
    x = table()
    with nki.World(ranks=ranks, host="inprocess", lnc=1) as world:
        places = nki.per_rank(lambda rank: np.array([[rank + 1]], np.int32))
        outs = world.run(copied, nki.per_rank([x + rank for rank in range(ranks)]), places)
    for rank, out in enumerate(outs):
        at, mine = rank + 1, x + rank
        flat = mine.reshape(-1)
        np.testing.assert_array_equal(out[0], mine[at + 2 : at + 4])
        np.testing.assert_array_equal(out[1], mine[at + 3 : at + 5])
        np.testing.assert_array_equal(out[2], mine[at + 3 : at + 5])
        start = at * COLUMNS + 1
        wanted = [flat[start + n : start + n + 2 * COLUMNS : 2] for n in range(2)]
        np.testing.assert_array_equal(out[3], wanted)
        np.testing.assert_array_equal(out[4], mine[at + 2 : at + 4])
    rows = [i for i in linked if i["src"].storage.role == "input" and i["dst"].dtype is float32]
    rows = [i for i in rows if i["src"].strides == (COLUMNS, 1) and i["src"].shape[0] == 2]
    assert len(rows) == 3


# ---- where it mustn't be ------------------------------------------------------------------------


@nki.jit
def within_one(x, places):
    """Columns 0 and 1 of each row go to the columns asked for, over what was there."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for n in nl.dynamic_range(len(places)):
        place = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=place, src=places.ap([[1, 1], [1, 1]], scalar_offset=n))
        start = nisa.register_alloc(place)
        nisa.tensor_tensor(
            dst=tile[:, nl.ds(start, 3)], data1=tile[:, 0:3], data2=tile[:, 0:3], op=nl.add
        )
    nl.store(out, tile)
    return out


def test_operands_in_one_tensor_are_linked_for_each_address():
    """Whether they overlap, and what that asks for, depends on the address."""
    x, places = table(), np.array([[3, 1, 0, 2]], np.int32).T
    wanted = x.copy()
    for start in places[:, 0]:
        wanted[:, start : start + 3] = wanted[:, :3] + wanted[:, :3]
    np.testing.assert_array_equal(run(within_one, x, places), wanted)


@nki.jit
def single(x, places, dtype):
    """One element for each place, in another type or in the same."""
    out = nl.ndarray((len(places), 1), dtype=dtype, buffer=nl.shared_hbm)
    for n in nl.dynamic_range(len(places)):
        place = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=place, src=places.ap([[1, 1], [1, 1]], scalar_offset=n))
        one = x.ap([[1, 1], [1, 1]], scalar_offset=place, indirect_dim=1)
        nisa.dma_copy(dst=out.ap([[1, 1]], scalar_offset=n), src=one)
    return out


@pytest.mark.parametrize("dtype", [nl.float32, nl.bfloat16])
def test_elements_alone_and_conversions(dtype):
    """Of one element, that is no array, the copy is linked for each place; so are conversions."""
    x, places = table(), np.array([[5, 0, 3]], np.int32).T
    out = run(single, x, places, dtype)
    np.testing.assert_array_equal(out.astype(np.float32), x[0, places])


def test_what_cant_be_linked_is_told_when_it_runs(monkeypatch):
    """Nobody asked for the address at which it is tried."""
    asked: list[int] = []
    meaning = nisa.dma_copy.lower

    def fails_at_least(i: Instruction, kit: Any) -> Any:
        asked.append(i["src"].offset)
        if i["src"].offset == 0 and i["src"].shape == (1, COLUMNS):
            raise OutOfBoundsError("not here", code="data-index-range")
        return meaning(i, kit)

    monkeypatch.setattr(nisa.dma_copy, "lower", fails_at_least)
    x, places = table(), np.array([[3, 0, 3]], np.int32).T
    np.testing.assert_array_equal(run(chosen, x, places, "both"), x[ROWS // 2 + places[:, 0]])
    with pytest.raises(OutOfBoundsError, match="not here"):
        run(chosen, x, np.array([[1, -4]], np.int32).T, "both")


def test_addresses_kept_are_bounded(monkeypatch, linked):
    monkeypatch.setattr(late, "CACHED", 2)
    x, places = table(), np.array([[3, 1, 0, 3, 1, 0]], np.int32).T
    run(single, x, places, nl.bfloat16)
    copies = [i for i in linked if i["dst"].dtype is bfloat16]
    assert len(copies) == 1 + 6 + 4  # to learn, all in the first launch, all but two in the next
