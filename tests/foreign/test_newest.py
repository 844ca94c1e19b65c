"""Constructs that the newest kernels of nki-library rely on (SDK 2.31 to 2.33), in kernels of ours.

Each was refused or computed otherwise when that library's kernel was first run; the name of its
file stands beside the test.
"""

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError, RaceError

BF16 = ml_dtypes.bfloat16


def launched(kernel, *args, platform="trn2", lnc=1, host="inprocess"):
    with nki.World(ranks=1, lnc=lnc, platform=platform, host=host) as world:
        return world.run(kernel, *args)[0]


# ---- experimental/gdn/gdn_cte.py: products in tiles of 16 rows and columns ---------------------


def products(a, b, size, position=(0, 0)):
    total = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    tiling = {"tile_position": position, "tile_size": (size, size)}
    left, right = nl.load(a), nl.load(b)
    for n in range(3):
        nisa.nc_matmul(total, left, right, accumulate=n > 0, **tiling)
    out = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(total))
    return out


@pytest.mark.parametrize("platform", ["trn2", "trn3"])
@pytest.mark.parametrize(("size", "position"), [(16, (0, 0)), (16, (32, 96)), (48, (64, 0))])
def test_a_tile_smaller_than_those_of_the_array(platform, size, position):
    rng = np.random.default_rng(size)
    a, b = (rng.integers(-8, 9, (size, n)).astype(np.float32) for n in (size - 3, 21))
    got = launched(products, a, b, size, position, platform=platform)  # silent: kernels do it
    np.testing.assert_array_equal(got, 3 * (a.T @ b))


@pytest.mark.parametrize(
    ("size", "position", "message"),
    [
        (16, (16, 0), "tile_position row 16; allowed: multiples of the tile's 32"),
        (48, (0, 32), "tile_position column 32; allowed: multiples of the tile's 64"),
        (8, (0, 0), "use 12 rows of the array, tile_size allows 8"),
    ],
)
def test_such_a_tile_lies_where_the_array_has_one_and_holds_the_operands(size, position, message):
    a = np.ones((12, 5), np.float32)
    with pytest.raises(NkiValidationError, match=message):
        launched(products, a, a, size, position)


# ---- experimental/rng/rng.py: both cores draw unseeded numbers and store them to one output ----


def drawn_by_all(x, apart):
    out = nl.ndarray((3, 40), dtype=nl.int32, buffer=nl.shared_hbm)
    state = nl.ndarray((3, 6), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.rand_get_state(dst=state, engine=nisa.engine.gpsimd)
    offset = nl.ndarray((3, 6), dtype=nl.uint32, buffer=nl.sbuf)
    start = nl.program_id(0) if apart else 0
    nisa.iota(offset, pattern=[[0, 6]], offset=start, channel_multiplier=1)
    nisa.tensor_tensor(dst=state, data1=state, data2=offset, op=nl.add)
    nisa.rand_set_state(src_seeds=state, engine=nisa.engine.gpsimd)
    numbers = nl.ndarray((3, 40), dtype=nl.int32, buffer=nl.sbuf)
    nisa.rng(dst=numbers, engine=nisa.engine.gpsimd)
    nisa.dma_copy(dst=out, src=numbers)
    return out


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_cores_that_seeded_nothing_draw_the_same_numbers(host):
    x = np.zeros((1, 1), np.float32)
    one, two = (np.asarray(launched(drawn_by_all, x, False, lnc=n, host=host)) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    assert len(np.unique(one)) == one.size
    with pytest.raises(RaceError, match="both touch byte 0 of out"):
        launched(drawn_by_all, x, True, lnc=2, host=host)


# ---- experimental/mla/deepseek/mla_vup_oproj_cte.py: sums in a bfloat16 tile of PSUM -----------


TERMS = np.array([256, 1, 1, 1, 4, 1, 1], np.float32)
ROUNDED = [256, 256, 256, 256, 260, 260, 260]  # in bfloat16 each time; in float32 once: 265


def multiplied(tile, row, mx):
    """Add `row`, (partitions, 6) with equal values in all partitions, to all of `tile`."""
    if not mx:
        ones = nl.ndarray((4, 2), dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.memset(ones, value=0.25)
        nisa.nc_matmul(tile, ones, row[0:4])
        return
    wide = nl.ndarray((32, 4 * 6), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(wide.reshape((32, 6, 4)), row.expand_dim(2).broadcast(2, 4))
    sides = []
    for columns in (6, 2):
        if columns == 2:
            nisa.memset(wide, value=2.0**-7)
        packed = nl.ndarray((32, columns), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scale = nl.ndarray((32, columns), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.quantize_mx(dst=packed, src=wide[:, : 4 * columns], dst_scale=scale)
        sides.append((packed, scale))
    (moving, moving_scale), (stationary, stationary_scale) = sides
    nisa.nc_matmul_mx(tile, stationary, moving, stationary_scale, moving_scale)


def added_one_by_one(terms, mx, look):
    tile = nl.ndarray((2, 6), dtype=nl.bfloat16, buffer=nl.psum)
    out = nl.ndarray((7, 2, 6), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    for n in range(7):
        multiplied(tile, nl.load(terms[n]), mx)
        if look or n == 6:
            nl.store(out[n], nl.copy(tile))
        else:
            nl.store(out[n], nl.zeros((2, 6), dtype=nl.bfloat16))
    return out


@pytest.fixture(scope="module", params=["inprocess", "debug", "ray"])
def trn3(request):
    with nki.World(ranks=1, platform="trn3", host=request.param) as world:
        yield world


@pytest.mark.parametrize("mx", [False, True])
@pytest.mark.parametrize("look", [False, True])
def test_a_bfloat16_tile_of_psum_is_rounded_by_each_matmul(mx, look, trn3):
    terms = np.broadcast_to(TERMS[:, None, None], (7, 32, 6)).astype(BF16)
    got = trn3.run(added_one_by_one, terms, mx, look)[0]
    want = np.array(ROUNDED if look else [0] * 6 + ROUNDED[-1:])
    assert np.array_equal(got.astype(np.float32), np.broadcast_to(want[:, None, None], got.shape))


def test_a_record_shows_what_each_matmul_left_in_bfloat16():
    terms = np.broadcast_to(TERMS[:, None, None], (7, 32, 6)).astype(BF16)
    kernel = nki.jit(added_one_by_one, platform_target="trn3")
    seen = nki.record(kernel)(terms, False, False).writes("tile")
    assert [set(w.values.astype(np.float32).flat) for w in seen] == [{n} for n in ROUNDED]


# ---- experimental/mxfp_utils/mxfp8_utils/load_block.py: padding is filled with 0, scales too ---


def padded_product(x, scale_dtype):
    """x.T @ x over 32 partitions, in tiles of 64: the rest is data 0 with scale 0."""
    sides = []
    for columns in (4, 6):
        data = nl.ndarray((64, columns), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
        scale = nl.ndarray((64, columns), dtype=scale_dtype, buffer=nl.sbuf)
        nisa.memset(data, value=0)
        nisa.memset(scale, value=0)
        wide = nl.load(x[:, : 4 * columns])
        nisa.quantize_mx(dst=data[0:32], src=wide, dst_scale=scale[0:32])
        sides.append((data, scale))
    (left, left_scale), (right, right_scale) = sides
    total = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(total, left, right, left_scale, right_scale)
    out = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(total))
    return out


@pytest.mark.parametrize("scale_dtype", [nl.uint8, nl.float8_e8m0fnu])
def test_scales_filled_with_zero_are_no_nan(scale_dtype):
    x = np.random.default_rng(7).integers(-7, 8, (32, 24)).astype(BF16)
    got = launched(padded_product, x, scale_dtype, platform="trn3")
    grouped = x.astype(np.float64).reshape(32, 6, 4)
    np.testing.assert_array_equal(got, np.einsum("pif,pjf->ij", grouped[:, :4], grouped))
