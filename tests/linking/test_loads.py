"""Tiles that are never loaded, because only products look at them."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.dtypes import float32
from nki_dist.linking import loads
from nki_dist.linking.facts import FactTable
from nki_dist.linking.lowering import Lowering
from nki_dist.linking.passes import VARIABLE
from nki_dist.linking.products import Products, find_chains
from nki_dist.program import Access, MemoryRegion, Storage, sbuf

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

K, M, N = 384, 48, 72
rng = np.random.default_rng(11)
A, B = (rng.standard_normal((K, n)).astype(np.float32) for n in (M, N))


def tile_of(source):
    tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source)
    return tile


def product(a, b, load=tile_of, load_left=tile_of, touched=lambda tile, n: None):
    """a.T @ b, in three matmuls."""
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
    for n in range(3):
        rows = slice(128 * n, 128 * n + 128)
        left, right = load_left(a[rows]), load(b[rows])
        touched(right, n)
        nisa.nc_matmul(dst=acc, stationary=left, moving=right)
    result = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=acc)
    nisa.dma_copy(dst=out, src=result)
    return out


def plain(a, b):
    return product(a, b)


def by_column(a, b):
    """The argument lies the other way round."""
    return product(a, b.reshape((N, K)).permute((1, 0)))


def parts_of_tiles(a, b):
    """Blocks of columns of larger tiles, the last block first."""
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = [[tile_of(x[n : n + 128]) for n in range(0, K, 128)] for x in (a, b)]
    for first in (48, 24, 0):
        acc = nl.ndarray((M, 24), dtype=nl.float32, buffer=nl.psum)
        for n in range(3):
            moving = right[n][:, first : first + 24]
            nisa.nc_matmul(dst=acc, stationary=left[n], moving=moving)
        result = nl.ndarray((M, 24), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=acc)
        nisa.dma_copy(dst=out[:, first : first + 24], src=result)
    return out


def repeated(a, b):
    """Each element of a row of the argument, twice."""
    return product(a, b[:, 0:1].broadcast(1, 24))


def a_column(a, b):
    """Of each tile one, again and again."""
    return product(a, b, lambda source: tile_of(source)[:, 5:6].broadcast(1, N))


def columns_of_columns(a, b):
    """Blocks of tiles of an argument that lies the other way round."""
    return parts_of_tiles(a, b.reshape((N, K)).permute((1, 0)))


def last_rows_first(a, b):
    """Not in the order in which the panel has them."""
    return product(a, b, lambda source: tile_of(b[256 - source.offset // N :][0:128]))


def overlapping(a, b):
    """Rows of the tile have elements of the argument in common."""

    def load(source):
        row = source.offset // N
        return tile_of(b.ap([[10, 128], [1, N]], offset=10 * row))

    return product(a, b, load)


def read_by_another(a, b):
    def look(tile, n):
        other = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=other, src=tile)

    return product(a, b, touched=look)


def changed(a, b):
    def add(tile, n):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(n))

    return product(a, b, touched=add)


def loaded_twice(a, b):
    return product(a, b, touched=lambda tile, n: nisa.dma_copy(dst=tile, src=b[0:128]))


def of_another_shape(a, b):
    def load(source):
        tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source.reshape((64, 2 * N)))
        return tile

    return product(a, b, load)


def in_parts(a, b):
    def load(source):
        tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:64], src=source[0:64])
        nisa.dma_copy(dst=tile[64:128], src=source[64:128])
        return tile

    return product(a, b, load)


def converted(a, b):
    def load(source):
        tile = nl.ndarray(source.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source)
        wide = nl.ndarray(source.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=wide, src=tile)
        return wide

    return product(a, b, load)


def rounded(a, b):
    def load(source):
        tile = nl.ndarray(source.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source.view(nl.bfloat16)[:, 0 : source.shape[1]])
        return tile

    return product(a, b, load)


def scratch(a, b):
    """From HBM that the kernel writes itself, and writes again."""

    def load(source):
        there = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=there, src=source)
        tile = tile_of(there)
        nisa.dma_copy(dst=there, src=b[0:128])
        return tile

    return product(a, b, load)


def overwritten(a, b):
    """The argument changes before the product is formed."""

    def clear(tile, n):
        zeros = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.memset(dst=zeros, value=0.0)
        nisa.dma_copy(dst=b[128 * n : 128 * n + 128], src=zeros)

    return product(a, b, touched=clear)


def of_another_row(a, b):
    """Which rows are loaded is known at run time only."""
    register = nisa.register_alloc(0)

    def load(source):
        tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=b.reshape((3, 128, N)).select(0, register))
        return tile

    return product(a, b, load)


APPLIES = (
    plain,
    by_column,
    parts_of_tiles,
    columns_of_columns,
    last_rows_first,
    overlapping,
    repeated,
    a_column,
)
APPLIES_TO_LEFT = (
    read_by_another,
    changed,
    loaded_twice,
    of_another_shape,
    in_parts,
    converted,
    rounded,
    scratch,
    overwritten,
    of_another_row,
)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(loads, "LEAST", 1)


def outcome(kernel, without, monkeypatch):
    monkeypatch.setenv(VARIABLE, without)
    a, b = A.copy(), B.copy()
    with nki.World(ranks=1, host="inprocess", lnc=1) as world:
        (out,) = world.run(nki.jit(kernel), a, b)
    return out.tobytes(), b.tobytes()


def not_loaded(program):
    return loads.find_loads(program, find_chains(program, arch.get("trn2"), FactTable()))


def found(kernel):
    (program,) = nki.jit(kernel).compile(A, B).programs
    return not_loaded(program)


@pytest.mark.parametrize("kernel", [*APPLIES, *APPLIES_TO_LEFT])
def test_bits_are_the_same(kernel, monkeypatch):
    here = outcome(kernel, "", monkeypatch)
    assert here == outcome(kernel, "loads", monkeypatch)
    a, b = A.copy(), B.copy()
    assert nki.debug(nki.jit(kernel))(a, b).tobytes() == here[0]


@pytest.mark.parametrize("kernel", [*APPLIES, *APPLIES_TO_LEFT])
def test_which_tiles_are_not_loaded(kernel):
    sources = {load.src.storage.index for load in found(kernel).values()}
    assert len(found(kernel)) == (6 if kernel in APPLIES else 3)
    assert sources == ({0, 1} if kernel in APPLIES else {0})


def alone(a, b):
    """One matmul, which reads its operands where they are."""
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    acc = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=acc, stationary=tile_of(a[0:128]), moving=tile_of(b[0:128]))
    result = nl.ndarray(out.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=acc)
    nisa.dma_copy(dst=out, src=result)
    return out


def narrowed(a, b):
    def load(source):
        tile = nl.ndarray(source.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=source)
        return tile

    return product(a, b, load, load)


@pytest.mark.parametrize("kernel", [alone, narrowed])
def test_nothing_is_left_out_where_tiles_matter(kernel, monkeypatch):
    assert not found(kernel)
    assert outcome(kernel, "", monkeypatch) == outcome(kernel, "loads", monkeypatch)


def test_a_product_of_a_tile_that_is_loaded_later():
    def kernel(a, b):
        return product(a, b, loaded_later)

    def loaded_later(source):
        tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
        acc = nl.ndarray((16, N), dtype=nl.float32, buffer=nl.psum)
        for _ in range(2):
            nisa.nc_matmul(dst=acc, stationary=tile[:, 0:16], moving=tile)
        nisa.dma_copy(dst=tile, src=source)
        return tile

    (program,) = nki.jit(kernel).compile(A, B).programs
    assert {load.src.storage.index for load in not_loaded(program).values()} == {0}


def test_views_of_a_tile_are_those_of_its_source():
    """Of all patterns over a tile, those that are told where they lie in the argument are right."""
    rng = np.random.default_rng(4)
    argument = Storage(0, MemoryRegion.shared_hbm, (40, 30), float32, role="input", index=0)
    tile = Storage(1, sbuf, (12, 7), float32)
    elements = np.arange(1200, dtype=np.float32)
    told = 0
    for _ in range(3000):
        strides = tuple(int(n) for n in rng.permutation([30, rng.integers(0, 3)]))
        src = Access(argument, int(rng.integers(0, 400)), (12, 7), strides, float32)
        load = loads.Load(0, Access(tile, 0, (12, 7), (7, 1), float32), src)
        shape = tuple(int(n) for n in rng.integers(1, 5, 2))
        steps = (int(rng.choice([0, 7, 14, 5])), int(rng.integers(-1, 4)))
        a = Access(tile, int(rng.integers(0, 20)), shape, steps, float32)
        low, high = (n // 4 for n in a.span())
        if low < 0 or high > 84 or (seen := load.seen(a)) is None:
            continue
        told += 1
        loaded = over(elements, src).copy().reshape(-1)
        assert np.array_equal(over(loaded, a), over(elements, seen))
    assert told > 300


def over(memory, a):
    return np.ndarray(a.shape, a.dtype.raw, memory, 4 * a.offset, tuple(4 * n for n in a.strides))


def test_an_argument_times_itself_keeps_its_bits(monkeypatch):
    """BLAS has another routine for a matrix times itself, which mustn't be taken."""

    def kernel(a, b):
        return product(b[:, 0:48], b[:, 0:48])

    assert outcome(kernel, "", monkeypatch) == outcome(kernel, "loads", monkeypatch)


def test_what_the_other_core_writes_is_loaded():
    def kernel(a, b):
        out = product(a, b)
        nisa.core_barrier(out, (0, 1))
        if nl.program_id(0) == 1:
            nisa.dma_copy(dst=b[0:128], src=b[128:256])
        return out

    made = nki.jit(kernel)[2].compile(A, B)
    for program in made.programs:
        assert {load.src.storage.index for load in not_loaded(program).values()} == {0}


def test_who_watches_sees_every_load():
    record = nki.record(nki.jit(plain))(A, B)
    loaded = [w.values for w in record.writes("tile")]
    assert np.array_equal(np.concatenate(loaded[::2]), A)
    assert np.array_equal(np.concatenate(loaded[1::2]), B)


@pytest.mark.parametrize(
    "kernel, panels", [(plain, 1), (by_column, 2), (overlapping, 2), (changed, 2)]
)
def test_panels_of_arguments_take_no_memory(kernel, panels):
    """Moving operands that lie in an argument as they would in the panel stay there."""
    (program,) = nki.jit(kernel).compile(A, B).programs
    made = Products(program, Lowering(arch.get("trn2")), FactTable()).panels
    assert sum(panel.shape[0] == K for panel in made) == panels


@pytest.mark.parametrize("kernel", [plain, by_column, parts_of_tiles, changed])
def test_what_is_not_loaded_is_what_products_say(kernel):
    (program,) = nki.jit(kernel).compile(A, B).programs
    facts, kit = FactTable(), Lowering(arch.get("trn2"))
    wanted = {load.ordinal for load in found(kernel).values()}
    assert Products(program, kit, facts).unmade == wanted != set()
    assert Products(program, kit, facts, {"loads"}).unmade == set()
