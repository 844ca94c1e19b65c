"""nc_transpose and dma_transpose: bits, shapes and constraints."""

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompilerMayRejectWarning, NkiValidationError, OutOfBoundsError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

BF16 = ml_dtypes.bfloat16


def bits(a):
    return np.asarray(a).view(f"u{np.asarray(a).dtype.itemsize}")


# ---- nc_transpose -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [np.float32, BF16, np.int32, np.uint8, np.uint16, ml_dtypes.float8_e4m3, np.float16]
)
@pytest.mark.parametrize("shape", [(128, 128), (1, 128), (77, 3), (5, 1)])
def test_tensor_engine(dtype, shape):
    x = numbers(1, shape, dtype)
    if x.dtype.kind != "i" and x.dtype.kind != "u":
        x[0, 0] = np.nan
    (got,) = on_tiles(
        lambda x, out: nisa.nc_transpose(out, x), [x], [((shape[1], shape[0]), x.dtype)], psum=[1]
    )
    assert np.array_equal(bits(got), bits(x.T))


@pytest.mark.parametrize("psum", [[], [0], [1], [0, 1]])
def test_vector_engine_in_either_memory(psum):
    x = numbers(2, (31, 17))
    (got,) = on_tiles(
        lambda x, out: nisa.nc_transpose(out, x, engine=nisa.engine.vector),
        [x],
        [((17, 31), np.float32)],
        psum=psum,
    )
    assert np.array_equal(got, x.T)


def test_free_dimensions_are_flattened_and_may_be_strided():
    x = numbers(3, (20, 6, 4))

    def body(x, out):
        nisa.nc_transpose(out[:, :, 0], x[:, :, 1:3])
        nisa.nc_transpose(out[:, :, 1], x.permute((0, 2, 1))[:, 0:2, :])

    (got,) = on_tiles(body, [x], [((12, 20, 2), np.float32)], psum=[1])
    assert np.array_equal(got[..., 0], x[:, :, 1:3].reshape(20, 12).T)
    assert np.array_equal(got[..., 1], x[:, :, 0:2].transpose(0, 2, 1).reshape(20, 12).T)


def test_gpsimd_does_not_transpose():
    def body(x, out):
        nisa.nc_transpose(out, x, engine=nisa.engine.gpsimd)

    with pytest.raises(NkiValidationError, match="engine=gpsimd; allowed: tensor, vector"):
        on_tiles(body, [numbers(6, (40, 20))], [((20, 40), np.float32)], psum=[1])


def test_tensor_engine_needs_sbuf_to_psum():
    def body(x, out):
        nisa.nc_transpose(out, x, engine=nisa.engine.tensor)

    x = numbers(7, (16, 16))
    with pytest.raises(NkiValidationError, match="dst is in sbuf; the Tensor engine"):
        on_tiles(body, [x], [((16, 16), np.float32)])
    with pytest.raises(NkiValidationError, match="data is in psum; the Tensor engine"):
        on_tiles(body, [x], [((16, 16), np.float32)], psum=[0, 1])


# ---- dma_transpose ----------------------------------------------------------------------------


def transposed(x, shape, dst=None, dtype=None, platform="trn2", sbuf=False, **options):
    def kernel(x):
        out = nl.ndarray(dst or shape, dtype=dtype or x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(dst or shape, dtype=dtype or x.dtype, buffer=nl.sbuf)
        source = nl.load(x) if sbuf else x
        nisa.dma_transpose(tile, source, **options)
        nisa.dma_copy(out, tile)
        return out

    return np.asarray(run(kernel, x, platform=platform))


@pytest.mark.parametrize("sbuf", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint16])
@pytest.mark.parametrize(
    "shape, axes", [((60, 33), (1, 0)), ((40, 5, 17), (2, 1, 0)), ((20, 3, 4, 50), (3, 1, 2, 0))]
)
def test_direct(shape, axes, dtype, sbuf):
    x = numbers(8, shape, dtype)
    want = x.transpose(axes)
    assert np.array_equal(
        bits(transposed(x, want.shape, sbuf=sbuf)), bits(np.ascontiguousarray(want))
    )
    assert np.array_equal(transposed(x, want.shape, axes=axes, sbuf=sbuf), want)


def test_strided_source_and_destination():
    x = numbers(9, (300, 40), BF16)

    def kernel(x):
        out = nl.ndarray((20, 100, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((20, 100, 2), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(tile, 0.0)
        source = x.ap([[120, 100], [1, 1], [1, 1], [2, 20]], offset=3)
        nisa.dma_transpose(tile.ap([[200, 20], [1, 1], [1, 1], [2, 100]], offset=1), source)
        nisa.dma_copy(out, tile)
        return out

    got = run(kernel, x)
    picked = 3 + 120 * np.arange(100)[None] + 2 * np.arange(20)[:, None]
    assert np.array_equal(got[..., 1], x.reshape(-1)[picked])
    assert not got[..., 0].any()


def test_in_place():
    x = numbers(10, (48, 48))

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.dma_transpose(tile, tile)
        nisa.dma_copy(out, tile)
        return out

    assert np.array_equal(run(kernel, x), x.T)


@pytest.mark.parametrize(
    "shape, changes, message",
    [
        ((20,), {}, "allowed: 2, 3 or 4 dimensions"),
        ((20, 8), {"axes": "ab"}, "axes='ab'; allowed: None or a tuple of ints"),
        ((20, 8), {"axes": 1}, "axes=1; allowed: None or a tuple of ints"),
        ((20, 8), {"axes": (2, 1, 0)}, r"with a src of 2 dimensions; allowed: \(1, 0\)"),
        ((20, 8), {"dtype": nl.bfloat16}, "dst has dtype bfloat16, src float32"),
        ((20, 8), {"priority": 1}, "priority needs NeuronCore-v4"),
        ((20, 8), {"priority": 4, "platform": "trn3"}, "priority=4; allowed: 0 to 3"),
        ((20, 8), {"oob_mode": nisa.oob_mode.skip}, "skip is for a src with a run-time index"),
    ],
)
def test_direct_refuses(shape, changes, message):
    with pytest.raises(NkiValidationError, match=message):
        transposed(numbers(11, shape), shape[::-1] if len(shape) > 1 else (8, 20), **changes)


def test_eight_bit_types_are_refused():
    with pytest.raises(NkiValidationError, match="int8 of 1 byte"):
        transposed(numbers(12, (20, 8), np.int8), (8, 20))


def test_hwdge():
    mode = {"dge_mode": nisa.dge_mode.hwdge}
    x = numbers(13, (16, 40), BF16)
    assert np.array_equal(transposed(x, (40, 16), **mode), x.T)
    x = numbers(14, (8, 2, 40), BF16)
    assert np.array_equal(transposed(x, (40, 2, 8), **mode), x.transpose(2, 1, 0))
    for shape, platform, message in [
        ((17, 40), "trn2", "17 rows; dge_mode.hwdge takes 16"),
        ((8, 3, 40), "trn2", "multiple of 16"),
        ((16, 129), "trn2", "last dimension of at most 128"),
        ((16, 40), "trn1", "NeuronCore-v3"),
    ]:
        dst = (128, *shape[1:-1], shape[0]) if shape[-1] > 128 else shape[::-1]
        with pytest.raises(NkiValidationError, match=message if dst == shape[::-1] else "dst has"):
            transposed(numbers(15, shape, BF16), dst, platform=platform, **mode)


def gathered(table, index, rows, dst, platform="trn2", start=0, pattern=None, **options):
    def kernel(table, index):
        out = nl.ndarray(dst, dtype=table.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(dst, dtype=table.dtype, buffer=nl.sbuf)
        nisa.memset(tile, 7)
        width = table.shape[-1]
        source = table.ap(
            pattern or [[width, rows], [1, width]], vector_offset=nl.load(index), indirect_dim=0
        )
        nisa.dma_transpose(tile, source, **options)
        nisa.dma_copy(out, tile)
        return out

    return np.asarray(run(kernel, table, index, platform=platform))


def test_gathered_rows():
    table = numbers(16, (500, 72), BF16)
    index = np.random.default_rng(1).integers(0, 500, (48, 1)).astype(np.uint32)
    got = gathered(table, index, 48, (72, 48))
    assert np.array_equal(got, table[index[:, 0]].T)
    got = gathered(table, index, 48, (72, 48), dge_mode=nisa.dge_mode.swdge, axes=(1, 0))
    assert np.array_equal(got, table[index[:, 0]].T)
    assert np.array_equal(gathered(table, index, 32, (72, 32)), table[index[:32, 0]].T)


def test_gathered_blocks_of_four_dimensions():
    table = numbers(17, (40, 3, 24), BF16)
    index = np.random.default_rng(2).permutation(40)[:32].astype(np.uint32)[:, None]
    got = gathered(table, index, 32, (24, 1, 3, 32), pattern=[[72, 32], [1, 1], [24, 3], [1, 24]])
    assert np.array_equal(got, table[index[:, 0]].transpose(2, 1, 0)[:, None])


def test_gathered_out_of_bounds():
    table = numbers(18, (40, 24), BF16)
    index = np.arange(16, dtype=np.uint32)[:, None]
    index[5], index[9] = 40, 2**32 - 1
    with pytest.raises(OutOfBoundsError, match=r"index 40 \(number 5\) is outside \[0, 40\)"):
        gathered(table, index, 16, (24, 16))
    got = gathered(table, index, 16, (24, 16), oob_mode=nisa.oob_mode.skip)
    want = table[np.where(index[:, 0] < 40, index[:, 0], 0)].T.copy()
    want[:, [5, 9]] = 7
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    "table, index, rows, platform, options, message",
    [
        ((90, 24), (16, 1), 16, "trn1", {}, "NeuronCore-v3"),
        ((90, 24), (24, 1), 24, "trn2", {}, "src has 24 rows; .* multiples of 16"),
        ((90, 24), (40, 1), 32, "trn2", {}, r"indices have shape \(40, 1\); allowed: 16 to 128"),
        ((90, 24), (16, 1), 32, "trn2", {}, r"32 rows, the indices \(shape \(16, 1\)\) are 16"),
        ((90, 24), (16, 1), 16, "trn2", {"dge_mode": "hwdge"}, "allowed: unknown, none, swdge"),
    ],
)
def test_gathered_refuses(table, index, rows, platform, options, message):
    with pytest.raises(NkiValidationError, match=message):
        gathered(
            numbers(19, table, BF16),
            np.zeros(index, np.uint32),
            rows,
            (table[1], rows),
            platform=platform,
            **options,
        )


def test_gathered_types():
    index = np.zeros((16, 1), np.uint32)
    with pytest.raises(NkiValidationError, match="src has dtype float32; a gathered transpose"):
        gathered(numbers(20, (90, 24)), index, 16, (24, 16))
    with pytest.raises(NkiValidationError, match="indices have dtype int32; allowed: uint32"):
        gathered(numbers(20, (90, 24), BF16), index.astype(np.int32), 16, (24, 16))
    with pytest.raises(NkiValidationError, match="one middle dimension of size 1"):
        gathered(
            numbers(21, (40, 6, 8), BF16), index, 16, (8, 2, 3, 16),
            pattern=[[48, 16], [24, 2], [8, 3], [1, 8]],
        )  # fmt: skip


def test_the_tensor_engine_of_trn1_multiplies():
    x = numbers(22, (40, 24), BF16)

    def body(x, out):
        nisa.nc_transpose(out, x, engine=nisa.engine.tensor)

    outputs = [((24, 40), BF16)]
    assert np.array_equal(on_tiles(body, [x], outputs, platform="trn1", psum=[1])[0], x.T)
    x[3, 5] = np.nan
    (got,) = on_tiles(body, [x], outputs, platform="trn1", psum=[1])
    spread = np.isnan(got.astype(np.float32))
    assert spread[5].all() and spread.sum() == 40
    (got,) = on_tiles(body, [x], outputs, platform="trn2", psum=[1])
    assert np.isnan(got.astype(np.float32)).sum() == 1


@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_a_product_of_trn1_may_leave_as_float32(dtype):
    x = numbers(23, (40, 24), dtype)

    def body(x, out):
        nisa.nc_transpose(out, x, engine=nisa.engine.tensor)

    outputs = [((24, 40), np.float32)]
    with pytest.warns(CompilerMayRejectWarning, match="documentation asks for one dtype"):
        (got,) = on_tiles(body, [x], outputs, platform="trn1", psum=[1])
    assert np.array_equal(got, x.T.astype(np.float32))
    with pytest.raises(NkiValidationError, match="a transpose doesn't convert"):
        on_tiles(body, [x], outputs, platform="trn2", psum=[1])


@pytest.mark.parametrize("source, dst", [(np.float32, BF16), (np.int16, np.float32)])
def test_no_other_transpose_of_trn1_converts(source, dst):
    def body(x, out):
        nisa.nc_transpose(out, x, engine=nisa.engine.tensor)

    with pytest.raises(NkiValidationError, match="a transpose doesn't convert"):
        on_tiles(body, [numbers(24, (8, 6), source)], [((6, 8), dst)], platform="trn1", psum=[1])
