"""What grids of tiles refuse: mistakes, and what the pages leave open."""

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.nki_0_7.test_grids import TILE, inside, tiled

ALLOC = {"buffer": nl.sbuf, "dtype": nl.float32}
REFUSED = {
    "a list": (lambda x: nl.tiles(x, tile_shape=[1, 2]), "grid-shape", TypeError),
    "no shape": (lambda x: nl.tiles(x), "grid-shape", TypeError),
    "one dimension": (lambda x: nl.tiles(x, tile_shape=(4,)), "grid-shape", ValueError),
    "zero": (lambda x: nl.tiles(x, tile_shape=(4, 0)), "grid-shape", ValueError),
    "too many": (lambda x: nl.tiles(x, tile_shape=(4, 4, 4)), "grid-shape", ValueError),
    "no tensor": (lambda x: nl.tiles(3, tile_shape=(4, 4)), "grid-shape", TypeError),
    "block of another rank": (
        lambda x: nl.blocks(x, tile_shape=(4, 4), block_shape=(1,)),
        "grid-shape",
        ValueError,
    ),
    "no memory": (
        lambda x: nl.alloc_tiles(
            tile_shape=(4, 4), element_shape=(4, 4), buffer="sbuf", dtype=nl.float32
        ),
        "memory-unknown",
        TypeError,
    ),
    "a float in element_shape": (
        lambda x: nl.alloc_tiles(tile_shape=(4, 4), element_shape=(4, 8.0), **ALLOC),
        "grid-shape",
        TypeError,
    ),
    "more partitions than there are": (
        lambda x: nl.alloc_tiles(tile_shape=(256, 4), element_shape=(256, 4), **ALLOC),
        "partition-limit",
        NkiValidationError,
    ),
    "untiled on chip": (
        lambda x: nl.alloc_tiles(tile_shape=(4, 4), element_shape=(2, 4, 4), **ALLOC),
        "grid-open",
        NkiValidationError,
    ),
    "other tiles of a grid": (
        lambda x: nl.tiles(tiled(x), tile_shape=(4, 4)),
        "grid-open",
        NkiValidationError,
    ),
    "tiles of a grid with gaps": (
        lambda x: nl.tiles(tiled(x)[::2]),
        "grid-open",
        NkiValidationError,
    ),
    "a run-time index": (
        lambda x: nl.tiles(x[nl.ds(nisa.register_alloc(0), 4), :], tile_shape=(4, 4)),
        "grid-open",
        NkiValidationError,
    ),
    "a register as coordinate": (
        lambda x: tiled(x)[nisa.register_alloc(0)],
        "grid-index",
        NkiValidationError,
    ),
    "outside": (lambda x: tiled(x)[3], "grid-index", NkiValidationError),
    "too many indices": (lambda x: tiled(x)[0, 0, 0], "grid-index", NkiValidationError),
    "indices of one tile": (lambda x: tiled(x)[0, 0][0], "grid-index", NkiValidationError),
    "backwards": (lambda x: tiled(x)[::-1], "grid-index", NkiValidationError),
    "nothing": (lambda x: tiled(x)[2:1], "grid-index", NkiValidationError),
    "assignment": (lambda x: tiled(x).__setitem__(0, x), "grid-index", NkiValidationError),
    "construction": (lambda x: nl.NkiTileGrid(tensor=x), "grid-made", NkiValidationError),
    "a grid as operand": (
        lambda x: nisa.dma_copy(dst=nl.ndarray(TILE, nl.float32), src=tiled(x)[0, 0]),
        "operand-kind",
        NkiValidationError,
    ),
    "another order": (
        lambda x: nl.empty_like(x, buffer=nl.sbuf, transpose_axes=(0, 1)),
        "grid-shape",
        NkiValidationError,
    ),
    "an order in HBM": (
        lambda x: nl.empty_like(x, transpose_axes=(1, 0)),
        "memory-kind",
        NkiValidationError,
    ),
    "a partition extent over 128": (
        lambda x: nl.empty_like(x, buffer=nl.sbuf, transpose_axes=(1, 0)),
        "partition-limit",
        NkiValidationError,
    ),
    "an order of a grid": (
        lambda x: nl.empty_like(tiled(x), buffer=nl.sbuf, transpose_axes=(1, 0)),
        "grid-open",
        NkiValidationError,
    ),
    "an address in HBM": (
        lambda x: nl.ndarray((4, 4), nl.float32, nl.private_hbm, address=(0,)),
        "address-form",
        NkiValidationError,
    ),
    "an address of a tensor that exists": (
        lambda x: nl.NkiTensor((4, 4), nl.float32, None, address=(0, 0)),
        "address-form",
        NkiValidationError,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    wrong, code, kind = REFUSED[case]
    with pytest.raises(kind) as caught:
        inside(wrong)
    assert caught.value.code == code and isinstance(caught.value, NkiValidationError)


def test_a_grid_isnt_iterated():
    with pytest.raises(TypeError, match="not iterable"):
        inside(lambda x: list(tiled(x)))
