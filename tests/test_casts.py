"""Conversions against float64 references that know only a format's exponent and mantissa bits."""

from __future__ import annotations

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest

from nki_dist import dtypes
from nki_dist.dtypes import casts, mx, poison
from nki_dist.errors import NkiValidationError

RNG = np.random.default_rng(20240607)

# name: (exponent bias, mantissa bits, largest finite, what overflow gives)
FORMATS = {
    "float16": (15, 10, 65504.0, np.inf),
    "bfloat16": (127, 7, (2 - 2.0**-7) * 2.0**127, np.inf),
    "tfloat32": (127, 10, (2 - 2.0**-10) * 2.0**127, np.inf),
    "float8_e4m3": (7, 3, 240.0, np.inf),
    "float8_e4m3fn": (7, 3, 448.0, np.nan),
    "float8_e5m2": (15, 2, 57344.0, np.inf),
}
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
NAMES = [d.name for d in dtypes.ALL if not d.is_mx]


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def reference(values: np.ndarray, name: str) -> np.ndarray:
    """Nearest even at the format's spacing, in float64; infinities and NaN as the table says."""
    bias, mantissa, largest, overflow = FORMATS[name]
    wide = values.astype(np.float64)
    finite = np.where(np.isfinite(wide), wide, 0.0)
    exponent = np.maximum(np.frexp(finite)[1] - 1, 1 - bias)
    spacing = np.ldexp(1.0, exponent - mantissa)
    rounded = np.rint(finite / spacing) * spacing
    rounded = np.where(np.abs(rounded) > largest, np.copysign(overflow, wide), rounded)
    infinite = np.copysign(overflow, wide)
    return np.where(np.isnan(wide), np.nan, np.where(np.isinf(wide), infinite, rounded))


def hard_values(name: str) -> np.ndarray:
    """Every value of the format (or of its upper 16 bits), the midpoints, and their neighbours."""
    if name in ("bfloat16", "tfloat32"):
        grid = (RNG.integers(0, 1 << 32, 40_000, dtype=np.uint32) & 0xFFFFE000).view(np.float32)
        steps = np.uint32(0x8000 if name == "bfloat16" else 0x1000)
        middle = (grid.view(np.uint32) | steps).view(np.float32)
        points = np.concatenate([grid, middle])
    else:
        storage = dtypes.of(name).dtype
        codes = np.arange(1 << (8 * storage.itemsize), dtype=f"u{storage.itemsize}")
        grid = np.sort(codes.view(storage).astype(np.float64)[:])
        grid = grid[np.isfinite(grid)]
        largest = FORMATS[name][2]
        edge = [largest * 17 / 16, largest * 1.25, largest * 2]
        points = np.concatenate([grid, (grid[1:] + grid[:-1]) / 2, edge, np.negative(edge)])
        points = points.astype(np.float32)
    bits = points.view(np.uint32)
    near = [bits + np.uint32(k) for k in (0, 1, 2, 0x7F, 0xFFFF)]
    near += [bits - np.uint32(k) for k in (1, 2, 0x80, 0x10000)]
    return np.concatenate(near).view(np.float32)


def all_sorts(count: int = 1 << 18) -> np.ndarray:
    """Random bit patterns of float32 (NaN of both kinds included), and ordinary magnitudes."""
    patterns = RNG.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    usual = np.ldexp(RNG.standard_normal(count), RNG.integers(-20, 20, count)).astype(np.float32)
    special = np.array(
        [0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 2.0**-126, 3.4028235e38, -3.4028235e38],
        np.float32,
    )
    signalling = np.array([0x7F800001, 0xFF800001, 0xFFFFFFFF, 0x7FBFFFFF], np.uint32)
    return np.concatenate([patterns, usual, special, signalling.view(np.float32)])


def convert(values: np.ndarray, src: str, dst: str, **options) -> np.ndarray:
    out = np.empty(values.shape, dtypes.of(dst).dtype)
    casts.converter(dtypes.of(src), dtypes.of(dst), **options)(out, values)
    return out


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal values, NaN at the same places, and zeros of the same sign."""
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(got64, want64)
    number = ~np.isnan(want64)
    np.testing.assert_array_equal(np.signbit(got64[number]), np.signbit(want64[number]))


def as_float64(values: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return values.astype(np.float64)


@pytest.mark.parametrize("name", FORMATS)
def test_float32_rounds_once_to_nearest_even(name):
    values = np.concatenate([hard_values(name), all_sorts()])
    with np.errstate(all="ignore"):
        want = reference(values, name)
    same(as_float64(convert(values, "float32", name)), want)


def test_float32_to_e8m0_is_the_nearest_power_of_two():
    values = all_sorts()
    values = np.concatenate([values, np.ldexp(np.float32(1.5), np.arange(-127, 128))])
    values = values.astype(np.float32)
    with np.errstate(all="ignore"):
        want = values.astype(ml_dtypes.float8_e8m0fnu).view(np.uint8)
    got = convert(values, "float32", "float8_e8m0fnu").view(np.uint8)
    np.testing.assert_array_equal(got, want)
    some = convert(np.array([1, 3, 2.9, 0, -2, np.inf], "f4"), "float32", "float8_e8m0fnu")
    assert some.view(np.uint8).tolist() == [127, 129, 128, 255, 255, 255]


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2"])
def test_saturating_conversion_gives_the_largest_finite_value(name):
    largest = dtypes.of(name).max
    values = np.array([1e9, -1e9, np.inf, -np.inf, np.nan, largest, 1.0], np.float32)
    got = as_float64(convert(values, "float32", name, saturate=True))
    np.testing.assert_array_equal(got, [largest, -largest, largest, -largest, np.nan, largest, 1.0])
    half = np.array([-np.inf, np.nan, 1.0], np.float16)
    from_half = as_float64(convert(half, "float16", name, saturate=True))
    np.testing.assert_array_equal(from_half, [-largest, np.nan, 1.0])


@pytest.mark.parametrize(
    "name", ["bfloat16", "float16", "float8_e4m3", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]
)
def test_every_pattern_widens_exactly(name):
    dt = dtypes.of(name)
    values = np.arange(1 << dt.bits, dtype=np.uint32).astype(dt.raw).view(dt.dtype)
    for dst in ("float32", "tfloat32"):
        same(as_float64(convert(values, name, dst)), as_float64(values))
        odd = np.empty((2, dt.bits * 16 - 1), np.float32)[:, ::2]
        window = values[: odd.size].reshape(odd.shape)
        casts.converter(dt, dtypes.of(dst))(odd, window)
        same(as_float64(odd), as_float64(window))


@pytest.mark.parametrize("name", INTEGERS)
def test_float32_to_integer_rounds_to_even_saturates_and_nan_is_zero(name):
    info = np.iinfo(name)
    ends = np.array([info.min, info.max], np.float32)
    near = np.concatenate([ends + k for k in (-1, -0.5, 0, 0.5, 1, 1.5)] + [ends * 2])
    neighbours = [np.nextafter(ends, np.float32(k)) for k in (-np.inf, np.inf)]
    halves = np.arange(-300, 300, dtype=np.float32) / 2
    values = np.concatenate([all_sorts(), near, *neighbours, halves])
    with np.errstate(all="ignore"):
        exact = np.nan_to_num(values.astype(np.float64), nan=0.0)
    want = np.clip(np.rint(exact), float(info.min), float(info.max)).astype(np.int64)
    np.testing.assert_array_equal(convert(values, "float32", name).astype(np.int64), want)
    calm = np.array([[0.5, 1.5, 2.5, 126.5, -0.0]], np.float32)  # the branch without fixing up
    assert convert(calm, "float32", name).tolist() == [[0, 2, 2, 126, 0]]


@pytest.mark.parametrize("src", INTEGERS)
def test_integers_reach_float32_rounded_to_nearest_even(src):
    info = np.iinfo(src)
    values = RNG.integers(info.min, int(info.max) + 1, 50_001).astype(src)
    values[:3] = [info.min, info.max, 0]
    # float64 holds every one of them exactly, and NumPy rounds float64 to float32 once.
    want = values.astype(np.float64).astype(np.float32)
    np.testing.assert_array_equal(convert(values, src, "float32"), want)
    same(convert(values, src, "tfloat32"), reference(want, "tfloat32"))
    narrower = np.clip(want.astype(np.float64), -128, 127)
    if src != "int8":
        np.testing.assert_array_equal(convert(values, src, "int8"), narrower)


@pytest.mark.parametrize(("src", "dst"), list(itertools.permutations(NAMES, 2)))
def test_every_pair_equals_two_steps_through_float32(src, dst):
    a, b = dtypes.of(src), dtypes.of(dst)
    inp = RNG.integers(0, 1 << a.bits, (7, 33), dtype=np.uint64).astype(a.raw).view(a.dtype)
    middle = convert(inp, src, "float32") if src != "float32" else inp
    want = convert(middle, "float32", dst) if dst != "float32" else middle
    got = convert(inp, src, dst)
    if not b.is_float:
        np.testing.assert_array_equal(got, want)
    else:
        same(as_float64(got), as_float64(want))


@pytest.mark.parametrize(("src", "dst"), list(itertools.product(NAMES, NAMES)))
def test_strides_do_not_matter(src, dst):
    a, b = dtypes.of(src), dtypes.of(dst)
    big = RNG.integers(0, 1 << a.bits, (10, 3, 22), dtype=np.uint64).astype(a.raw).view(a.dtype)
    f = casts.converter(a, b, scratch=casts.Scratch())
    for inp in (
        big[::3, :, 1::2],
        big.transpose(2, 0, 1),
        np.broadcast_to(big[:, :1, :1], (10, 5, 8)),
        big[0, 0, :0],
        big[1, 2, 3],
    ):
        inp = np.asarray(inp)
        flat, store = np.empty(inp.shape, b.dtype), np.zeros((*inp.shape, 2), b.dtype)
        f(flat, np.array(inp.view(a.raw)).view(a.dtype))
        f(store[..., 0], inp)
        np.testing.assert_array_equal(store[..., 0].view(b.raw), flat.view(b.raw))
        assert not store[..., 1].view(b.raw).any(), "wrote outside its view"


@pytest.mark.parametrize("dt", dtypes.ALL, ids=str)
def test_same_type_moves_bits(dt):
    bits = RNG.integers(0, 1 << dt.bits, (5, 129), dtype=np.uint64).astype(dt.raw)
    out = np.zeros((5, 129), dt.dtype)
    casts.converter(dt, dt)(out, bits.view(dt.dtype))
    np.testing.assert_array_equal(out.view(dt.raw), bits)


@pytest.mark.parametrize("dst", ["bfloat16", "int16", "float8_e4m3", "float32"])
def test_large_arrays_go_by_blocks(dst):
    for shape in ((3, 70_001), (1, 1, 200_003), (300, 7, 97)):
        values = RNG.standard_normal(shape).astype(np.float16)
        got = convert(values, "float16", dst)
        want = np.stack([convert(row, "float16", dst) for row in values.reshape(-1, shape[-1])])
        raw = dtypes.of(dst).raw
        np.testing.assert_array_equal(got.view(raw), want.reshape(shape).view(raw))


def test_overlapping_arrays_convert_as_if_they_did_not():
    memory = np.zeros(400_001, np.float32)
    memory[:200_000] = RNG.standard_normal(200_000)
    want = convert(memory[:200_000].copy(), "float32", "bfloat16")
    out = memory.view(ml_dtypes.bfloat16)[2:200_002]
    casts.converter(dtypes.float32, dtypes.bfloat16)(out, memory[:200_000])
    np.testing.assert_array_equal(out.view(np.uint16), want.view(np.uint16))
    halves = np.arange(64, dtype=np.float32).astype(ml_dtypes.bfloat16)
    memory = np.zeros(64, np.float32)
    memory.view(ml_dtypes.bfloat16)[:64] = halves
    casts.converter(dtypes.bfloat16, dtypes.float32)(memory, memory.view(ml_dtypes.bfloat16)[:64])
    np.testing.assert_array_equal(memory, np.arange(64))


def test_bool_is_true_for_anything_but_zero():
    values = np.array([0, -0.0, np.nan, 1e-45, -3, np.inf], np.float32)
    assert convert(values, "float32", "bool_").tolist() == [False, False, True, True, True, True]
    odd_byte = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    assert convert(odd_byte, "bool_", "float32").tolist() == [0, 1, 1, 1]
    assert convert(odd_byte, "bool_", "int32").tolist() == [0, 1, 1, 1]


def test_packed_types_refuse_conversion():
    with pytest.raises(NkiValidationError, match="float8_e5m2_x4 -> float32"):
        casts.converter(dtypes.float8_e5m2_x4, dtypes.float32)
    with pytest.raises(NkiValidationError, match="uint32 -> float8_e4m3fn_x4"):
        casts.converter(dtypes.uint32, dtypes.float8_e4m3fn_x4)


def test_pack_x4_puts_the_first_value_in_the_lowest_bits():
    fp8 = mx.pack_x4([[1.0, -2.0, 0.5, 448.0]], dtypes.float8_e4m3fn_x4)
    assert fp8.dtype == np.uint32 and fp8.tolist() == [[0x7E30C038]]
    e5m2 = mx.pack_x4([1.0, -2.0, 0.5, 0.0], dtypes.float8_e5m2_x4)
    assert e5m2.tolist() == [0x0038C03C]
    fp4 = mx.pack_x4([0.5, -1.0, 6.0, -0.0], dtypes.float4_e2m1fn_x4)
    assert fp4.dtype == np.uint16 and fp4.tolist() == [0x87A1]


@pytest.mark.parametrize("dt", [d for d in dtypes.ALL if d.is_mx], ids=str)
def test_pack_and_unpack_x4_are_inverse_and_saturate(dt):
    bits = RNG.integers(0, 1 << dt.bits, (3, 5, 513), dtype=np.uint64).astype(dt.raw)
    values = mx.unpack_x4(bits, dt)
    assert values.shape == (3, 5, 4 * 513) and values.dtype == np.float32
    again = mx.unpack_x4(mx.pack_x4(values, dt), dt)
    # Infinities and large values saturate, everything else comes back.
    same(again, np.clip(values, dt.min, dt.max))
    assert mx.unpack_x4(mx.pack_x4([1e9, -1e9, np.inf, 0], dt), dt).tolist() == [
        dt.max,
        dt.min,
        dt.max,
        0,
    ]


def test_fp4_rounds_to_nearest_even():
    values = np.array([0.25, 0.2500001, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 5.0000005, -7, 0.2, 1.3])
    want = [0, 0.5, 1, 1, 2, 2, 4, 4, 6, -6, 0, 1.5]
    packed = mx.pack_x4(values, dtypes.float4_e2m1fn_x4)
    assert mx.unpack_x4(packed, dtypes.float4_e2m1fn_x4).tolist() == want


def test_pack_x4_refuses_what_is_not_fours_or_not_packed():
    with pytest.raises(NkiValidationError, match=r"fours.*\(2, 6\)"):
        mx.pack_x4(np.zeros((2, 6)), dtypes.float8_e5m2_x4)
    with pytest.raises(NkiValidationError, match="got uint32, allowed float8_e5m2_x4"):
        mx.pack_x4(np.zeros(4), dtypes.uint32)
    with pytest.raises(NkiValidationError, match="array of uint16"):
        mx.unpack_x4(np.zeros(4, np.uint32), dtypes.float4_e2m1fn_x4)


def test_e8m0_codes():
    scales = mx.e8m0_to_float32(np.arange(256, dtype=np.uint8))
    np.testing.assert_array_equal(scales[:255], np.ldexp(1.0, np.arange(-127, 128)))
    assert np.isnan(scales[255])
    with pytest.raises(NkiValidationError, match="got float32"):
        mx.e8m0_to_float32(np.zeros(3, np.float32))


@pytest.mark.parametrize("dt", dtypes.ALL, ids=str)
def test_poison_fills_and_is_recognised(dt):
    array = np.zeros((3, 10), dt.dtype)
    assert not poison.is_poison(array, dt).any()
    array[:, ::2].view(dt.raw)[...] = poison.poison_bits(dt)
    assert poison.is_poison(array, dt).tolist() == [[True, False] * 5] * 3
    if dt.is_float:
        assert np.isnan(as_float64(array[:, ::2])).all()
    elif dt.is_integer:
        assert abs(int(array[0, 0])) > dt.max // 3


@pytest.mark.parametrize(
    ("src", "dst"), list(itertools.permutations(["float32", "tfloat32", "bfloat16", "float16"], 2))
)
def test_poison_stays_poison_between_the_wider_floats(src, dst):
    array = np.zeros(6, dtypes.of(src).dtype)
    array[1:4].view(dtypes.of(src).raw)[...] = poison.poison_bits(dtypes.of(src))
    computed = np.full(2, np.nan, np.float32)
    got = convert(array, src, dst)
    assert poison.is_poison(got, dtypes.of(dst)).tolist() == [False, True, True, True, False, False]
    assert not poison.is_poison(convert(computed, "float32", dst), dtypes.of(dst)).any()
    if src == "float32":
        doubled = convert(array * np.float32(-2) + np.float32(1), src, dst)
        assert poison.is_poison(doubled, dtypes.of(dst)).tolist()[:5] == [
            False,
            True,
            True,
            True,
            False,
        ]
