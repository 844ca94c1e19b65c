"""Tiles of the Tensor engine's array: products side by side, and what has to wait."""

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.test_replay import TRN2, timed


def tiled(positions, size, columns=32, rows=128, n=400):
    """Products in tiles of the array, one after the other, each into a PSUM tensor of its own."""

    def kernel(x):
        left, right = (nl.ndarray((rows, k), nl.bfloat16, buffer=nl.sbuf) for k in (columns, n))
        nisa.memset(dst=left, value=0)
        nisa.memset(dst=right, value=0)
        for at in positions:
            out = nl.ndarray((columns, n), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(
                out, left, right, **({"tile_position": at, "tile_size": size} if at else {})
            )

    return kernel


SPAN = (400 + 15) / 2.4  # of one product, at the full clock


@pytest.mark.parametrize(
    ("positions", "size", "begun"),
    [
        ([(0, 0), (0, 32), (0, 64), (0, 96)], (128, 32), [0, 0.25, 0.5, 0.75]),
        ([(0, 0), (0, 0), (0, 32), (0, 0)], (128, 32), [0, 1, 1.25, 2]),  # its own tile is taken
        ([(0, 0), (0, 64), (0, 0)], (128, 64), [0, 0.5, 1]),
        ([(0, 0), (0, 96), None, (0, 32)], (128, 32), [0, 0.25, 1.25, 2.25]),  # the whole array
    ],
)
def test_products_in_tiles_of_the_array_run_side_by_side(positions, size, begun):
    steady = TRN2.with_values(tensor_ramp_ns=0.0)
    (core,) = timed(tiled(positions, size), [(2, 2)], platform=steady).cores
    found = [t - core.start[2] for t in core.start[2:]]
    assert found == pytest.approx([SPAN * b for b in begun])
    assert core.done[-1] - core.start[-1] == pytest.approx(SPAN + 390 / 2.4)


@pytest.mark.parametrize(("columns", "begun"), [(64, 0.5), (80, 1)])
def test_a_tile_that_the_array_lacks_takes_the_next_larger_one(columns, begun):
    """80 columns are 128 of them, so what begins at column 96 has to wait; 64 would leave it."""

    def kernel(x):
        left, right = (nl.ndarray((128, k), nl.bfloat16, buffer=nl.sbuf) for k in (32, 400))
        nisa.memset(dst=left, value=0)
        nisa.memset(dst=right, value=0)
        for at, size in [((0, 0), columns), ((0, 96), 32)]:
            out = nl.ndarray((32, 400), nl.float32, buffer=nl.psum)
            nisa.nc_matmul(out, left, right, tile_position=at, tile_size=(128, size))

    steady = TRN2.with_values(tensor_ramp_ns=0.0)
    (core,) = timed(kernel, [(2, 2)], platform=steady).cores
    assert core.start[3] - core.start[2] == pytest.approx(SPAN * begun)
