"""nl.tiles, blocks, alloc_tiles, alloc_blocks, empty_like of grids, and what they make.

From the pages nki.language.NkiGrid, NkiTileGrid, NkiBlockGrid, tiles, blocks, alloc_tiles,
alloc_blocks and empty_like of SDK 2.33. Geometry is compared with NumPy's slices of the array.
"""

from itertools import product

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.isa.helpers import numbers, output, run

X = numbers(1, (300, 700))  # tiles of (128, 256): 3 x 3, cut at 44 and 188
TILE = (128, 256)


def inside(look, x=X):
    """What `look` of the kernel's argument returns while it is traced."""
    found = []

    def kernel(x):
        found.append(look(x))
        return output(nl.load(x[0:1, 0:1] if x.ndim == 2 else x[0, 0:1, 0:1]))

    run(kernel, x)
    return found[0]


def contents(select, x=X):
    """The elements of a selection's `.data`, copied out by DMA."""

    def kernel(x):
        data = select(x).data
        out = nl.ndarray(data.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=data)
        return out

    return run(kernel, x)


def tiled(x):
    return nl.tiles(x, tile_shape=TILE)


# ---- the pages' kernels -------------------------------------------------------------------------


def test_page_of_nki_tile_grid():
    def kernel(src):
        src_tiles = nl.tiles(src, tile_shape=TILE)
        dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
        dst_tiles = nl.tiles(dst, tile_shape=TILE)
        for i in range(src_tiles.shape[0]):
            for j in range(src_tiles.shape[1]):
                src_tile = src_tiles[i, j]
                tile = nl.ndarray(src_tile.element_shape, dtype=src.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=tile.data, src=src_tile.data)
                nisa.dma_copy(dst=dst_tiles[i, j].data, src=tile.data)
        return dst

    for shape in ((256, 512), (300, 700), (7, 9)):
        x = numbers(2, shape)
        assert np.array_equal(run(kernel, x), x)


def test_page_of_nki_block_grid():
    """Blocks of tiles, and their tiles; in SBUF a block's rows of tiles lie behind each other."""

    def kernel(src):
        geometry = {"tile_shape": (32, 64), "block_shape": (2, 3)}
        src_blocks = nl.blocks(src, **geometry)
        dst = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.shared_hbm)
        dst_blocks = nl.blocks(dst, **geometry)
        for pair in product(*map(range, src_blocks.shape)):
            i, j = pair
            src_block = src_blocks[i, j]
            block = nl.alloc_blocks(
                tile_shape=src_block.tile_shape,
                block_shape=src_block.block_shape,
                element_shape=src_block.element_shape,
                dtype=src.dtype,
                buffer=nl.sbuf,
            )
            here, from_, to = [nl.tiles(b) for b in (block[0, 0], src_block, dst_blocks[i, j])]
            assert here.shape == from_.shape
            for k in range(here.shape[0]):
                nisa.dma_copy(dst=here[k].data, src=from_[k].data)
                for n in range(here.shape[1]):
                    tile = here[k, n].data
                    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
                    nisa.dma_copy(dst=to[k, n].data, src=tile)
        return dst

    assert np.array_equal(run(kernel, X), X * np.float32(3))


def test_page_of_tiles_counts_4_by_4():
    grid = inside(lambda x: nl.tiles(x, tile_shape=(128, 256)), numbers(3, (512, 1024)))
    assert grid.shape == (4, 4) and not grid.is_remainder
    blocks = inside(
        lambda x: nl.blocks(x, tile_shape=(128, 256), block_shape=(2, 2)), numbers(3, (512, 1024))
    )
    assert blocks.shape == (2, 2)


# ---- geometry -----------------------------------------------------------------------------------


def test_attributes_of_a_tile_grid():
    grid = inside(tiled)
    assert isinstance(grid, nl.NkiTileGrid) and isinstance(grid, nl.NkiGrid)
    assert (grid.shape, grid.tile_shape, grid.element_shape) == ((3, 3), TILE, (300, 700))
    assert grid.index_step_elements == TILE and grid.is_remainder
    assert grid.dtype == nl.float32 and grid.buffer == nl.shared_hbm
    assert grid.is_data_representable


def test_attributes_of_a_block_grid():
    grid = inside(lambda x: nl.blocks(x, tile_shape=TILE, block_shape=(2, 1)))
    assert isinstance(grid, nl.NkiBlockGrid) and isinstance(grid, nl.NkiGrid)
    assert (grid.shape, grid.block_shape, grid.tile_shape) == ((2, 3), (2, 1), TILE)
    assert grid.index_step_elements == (256, 256)
    last = grid[1, 2]
    assert (last.shape, last.element_shape, last.is_remainder) == ((), (44, 188), True)
    assert (grid[0, 0].element_shape, grid[0, 0].is_remainder) == ((256, 256), False)


SELECTIONS = {
    "one tile": ((1, 2), (slice(128, 256), slice(512, 700))),
    "the last one": ((-1, -1), (slice(256, 300), slice(512, 700))),
    "a row": ((1,), (slice(128, 256), slice(None))),
    "a row by slices": ((1, slice(None)), (slice(128, 256), slice(None))),
    "a column": ((slice(None), 0), (slice(None), slice(0, 256))),
    "several": ((slice(1, 3), slice(0, 2)), (slice(128, 300), slice(0, 512))),
    "one of a slice": ((slice(1, 3), slice(1, None, 2)), (slice(128, 300), slice(256, 512))),
}


@pytest.mark.parametrize("case", SELECTIONS)
def test_data_of_a_selection(case):
    key, slices = SELECTIONS[case]
    want = X[slices]
    assert np.array_equal(contents(lambda x: tiled(x)[key]), want)
    chosen = inside(lambda x: tiled(x)[key])
    assert chosen.element_shape == want.shape and chosen.is_data_representable


def test_selections_of_selections():
    assert np.array_equal(contents(lambda x: tiled(x)[1:][1, 1:][0]), X[256:300, 256:512])


def test_gaps_between_cells():
    grid = inside(lambda x: tiled(x)[::2, 1])
    assert grid.shape == (2,) and grid.element_shape == (128 + 44, 256)
    assert grid.index_step_elements == (256,) and not grid.is_data_representable
    with pytest.raises(NkiValidationError, match="gaps between them") as caught:
        contents(lambda x: tiled(x)[::2, 1])
    assert caught.value.code == "grid-data"
    assert np.array_equal(contents(lambda x: tiled(x)[::2][1, 0]), X[256:300, 0:256])


def test_untiled_dimensions_of_hbm():
    x = numbers(4, (3, 40, 50))

    def grid(x):
        return nl.tiles(x, tile_shape=(32, 32))

    assert inside(grid, x).shape == (3, 2, 2)
    assert inside(grid, x).index_step_elements == (1, 32, 32)
    assert inside(lambda x: grid(x)[2, 1], x).element_shape == (8, 50)
    assert np.array_equal(contents(lambda x: grid(x)[2, 1], x), x[2, 32:40])
    assert np.array_equal(contents(lambda x: grid(x)[1:, 0, 1], x), x[1:, 0:32, 32:50])


def test_tiles_of_a_block_and_blocks_of_tiles():
    def block(x):
        return nl.blocks(x, tile_shape=(32, 64), block_shape=(2, 3))[1, 2]

    inner = inside(lambda x: nl.tiles(block(x)))
    assert (inner.shape, inner.element_shape) == ((2, 3), (64, 192))
    assert np.array_equal(contents(lambda x: nl.tiles(block(x))[1, 2]), X[96:128, 512:576])
    again = inside(lambda x: nl.blocks(nl.tiles(block(x)), block_shape=(1, 2)))
    assert (again.shape, again.block_shape, again.tile_shape) == ((2, 2), (1, 2), (32, 64))
    assert np.array_equal(
        contents(lambda x: nl.blocks(block(x), block_shape=(1, 2))[1, 1]), X[96:128, 512:576]
    )
    assert inside(lambda x: nl.tiles(tiled(x)[1, 2], tile_shape=TILE)).shape == (1, 1)


# ---- storage of its own -------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["sbuf", "psum", "private_hbm"])
def test_allocated_tiles_are_apart(where):
    """Every tile is written with its own number before any is read."""

    def kernel(x):
        grid = nl.alloc_tiles(
            tile_shape=(32, 40),
            element_shape=(50, 100),
            buffer=getattr(nl, where),
            dtype=nl.float32,
        )
        out = nl.ndarray((50, 100), dtype=nl.float32, buffer=nl.shared_hbm)
        cells = list(product(range(2), range(3)))
        for n in range(len(cells)):
            cell = cells[n]
            data = grid[cell].data
            full = nl.full(data.shape, n, nl.float32)
            (nisa.dma_copy if data.buffer.is_hbm else nisa.tensor_copy)(dst=data, src=full)
        for pair in cells:
            i, j = pair
            data = grid[i, j].data
            into = out[i * 32 : i * 32 + data.shape[0], j * 40 : j * 40 + data.shape[1]]
            if not data.buffer.is_hbm:
                copied = nl.ndarray(data.shape, dtype=nl.float32)
                nisa.tensor_copy(copied, data)
                data = copied
            nisa.dma_copy(dst=into, src=data)
        return out

    want = np.add.outer(np.arange(50) // 32 * 3, np.arange(100) // 40)
    assert np.array_equal(run(kernel, X), want)


def test_a_row_of_tiles_on_chip_is_one_operand():
    def kernel(x):
        grid = nl.alloc_tiles(
            tile_shape=(50, 32), element_shape=(100, 70), buffer=nl.sbuf, dtype=x.dtype
        )
        assert grid.shape == (2, 3) and not grid.is_data_representable
        for i in range(2):
            nisa.dma_copy(dst=grid[i].data, src=x[50 * i : 50 * i + 50, 0:70])
        return output(grid[1].data), output(grid[0, 1:].data), output(grid[1, 2].data)

    row, part, last = run(kernel, X)
    assert np.array_equal(row, X[50:100, 0:70])
    assert np.array_equal(part, X[0:50, 32:70])
    assert np.array_equal(last, X[50:100, 64:70])

    def aggregate(x):
        return nl.alloc_tiles(
            tile_shape=(50, 32), element_shape=(100, 70), buffer=nl.sbuf, dtype=x.dtype
        ).data

    with pytest.raises(NkiValidationError, match="several rows of tiles in the same partitions"):
        inside(aggregate)


def test_tiles_of_three_dimensions_on_chip():
    x = numbers(5, (20, 5, 6))

    def kernel(x):
        grid = nl.alloc_tiles(
            tile_shape=(20, 2, 4), element_shape=(20, 5, 6), buffer=nl.sbuf, dtype=x.dtype
        )
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        of_x, of_out = [nl.tiles(t, tile_shape=(20, 2, 4)) for t in (x, out)]
        cells = list(product(*map(range, grid.shape)))
        for cell in cells:
            nisa.dma_copy(dst=grid[cell].data, src=of_x[cell].data)
        for cell in cells:
            nisa.dma_copy(dst=of_out[cell].data, src=grid[cell].data)
        return out

    assert np.array_equal(run(kernel, x), x)


def test_address_and_name_of_allocated_tiles():
    def look(x):
        grid = nl.alloc_tiles(
            tile_shape=(32, 16),
            element_shape=(32, 32),
            buffer=nl.sbuf,
            dtype=nl.float32,
            address=(64, 4096),
            name="mine",
        )
        return grid.data.storage

    storage = inside(look)
    assert (storage.address, storage.name, storage.shape) == ((64, 4096), "mine", (32, 32))


def test_empty_like_of_grids():
    def look(x):
        grid = nl.blocks(x, tile_shape=(32, 64), block_shape=(2, 3))
        like = nl.empty_like(grid[::4, 3], dtype=nl.bfloat16, buffer=nl.sbuf)
        return grid[::4, 3], like

    of, like = inside(look)
    assert type(like) is nl.NkiBlockGrid and like.buffer == nl.sbuf
    assert like.dtype == nl.bfloat16
    for name in ("shape", "tile_shape", "block_shape", "element_shape", "is_remainder"):
        assert getattr(like, name) == getattr(of, name), name
    assert of.element_shape == (64 + 44, 124) and like.index_step_elements == (64,)

    def values(x):
        like = nl.empty_like(tiled(x)[::2, 1:])
        assert like.buffer == nl.shared_hbm and like.shape == (2, 2)
        for pair in product(range(2), range(2)):
            i, j = pair
            nisa.dma_copy(dst=like[i, j].data, src=tiled(x)[2 * i, 1 + j].data)
        return like.data

    want = np.concatenate([X[0:128], X[256:300]])[:, 256:]
    assert np.array_equal(run(values, X), want)


@pytest.mark.parametrize("shape", [(3, 5), (3, 4, 5), (3, 4, 6, 5)])
def test_empty_like_for_a_transpose(shape):
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    x = numbers(6, (*shape,))

    def look(x):
        return nl.empty_like(x, buffer=nl.sbuf, transpose_axes=order).shape

    found = []
    run(lambda x: (found.append(look(x)), output(nl.load(x.reshape((3, -1)))))[1], x)
    assert found == [tuple(shape[d] for d in order)]
