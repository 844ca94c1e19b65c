"""What the release notes of NKI announce and repair, where no test of the instruction says it.

docs/releases.md lists every note with its tests; the last tests here check that page.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import nki_dist
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from tests.isa.helpers import numbers, output, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "releases.md"


def test_2_21_ds_slices_from_a_start():
    x = numbers(4, (7, 9))
    assert np.array_equal(
        run(lambda x: output(nl.load(x[nl.ds(2, 3), nl.ds(4, 5)])), x), x[2:5, 4:]
    )


def test_2_23_range_select_needs_trn2():
    def kernel(x):
        tile, dst = nl.load(x), nl.ndarray(x.shape, dtype=nl.float32)
        nisa.range_select(dst, tile, nl.greater, nl.less, tile[:, 0:1], tile[:, 1:2])
        return output(dst)

    run(kernel, numbers(6, (3, 4)), platform="trn2")
    with pytest.raises(NkiValidationError, match="NeuronCore-v3"):
        run(kernel, numbers(6, (3, 4)), platform="trn1")


def test_2_27_instructions_write_dst_and_take_no_mask():
    plain = {"device_print", "set_rng_seed", "rand_set_state", "core_barrier", "sendrecv"}
    plain |= {"language_math", "topk"}
    for name, spec in nisa.INSTRUCTIONS.items():
        names = list(spec.signature.parameters)
        assert not {"mask", "dtype"} & set(names), name
        if name not in plain and "dst" in names:
            assert names[0] == "dst", name


def test_2_28_callable_objects():
    class Scale(nl.NKIObject):
        by: float = 3.0

        def __call__(self, tile):
            dst = nl.ndarray(tile.shape, dtype=tile.dtype)
            nisa.tensor_scalar(dst, tile, nl.multiply, self.by)
            return dst

    x = numbers(16, (3, 4))
    assert np.array_equal(run(lambda x: output(Scale()(nl.load(x))), x), x * np.float32(3))


@pytest.mark.parametrize("name", ["psumAccumulateFlag", "is_moving_zero"])
def test_2_28_matmul_parameters_that_went_or_were_renamed(name):
    def kernel(x):
        tile, dst = nl.load(x), nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst, tile, tile, **{name: True})
        return output(nl.copy(dst))

    with pytest.raises(NkiValidationError, match="is_moving_onezero"):
        run(kernel, numbers(20, (4, 4)))


@pytest.mark.parametrize("region", ["hbm", "shared_hbm", "private_hbm"])
def test_2_28_reshape_in_every_hbm(region):
    x = numbers(28, (6, 8))

    def kernel(x):
        t = nl.ndarray((6, 8), dtype=nl.float32, buffer=getattr(nl, region))
        nisa.dma_copy(dst=t, src=x)
        return output(nl.load(t.reshape((2, 24))))

    assert np.array_equal(run(kernel, x), x.reshape(2, 24))


def test_2_28_nested_decorators():
    def wrapper(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @wrapper
    def plain(x):
        return output(nl.square(nl.load(x)))

    x = numbers(34, (3, 4))
    assert np.array_equal(run(plain, x), x * x)
    outside = wrapper(nki_dist.simulate(nki_dist.jit(plain)))
    assert np.array_equal(outside(x), x * x)
    assert np.array_equal(run(lambda x: nki_dist.jit(nki_dist.jit(plain))(x), x), x * x)


def test_0_4_0_dma_copy_skip_keeps_integer_bits():
    table = np.array([[2**31 - 1, 16777217, -5], [7, -(2**31), 2**24 + 3]], np.int32)
    rows = np.array([[1], [9], [0]], np.int32)

    def kernel(table, rows):
        index, dst = nl.load(rows), nl.ndarray((3, 3), dtype=nl.int32)
        nisa.memset(dst=dst, value=-1)
        source = table.ap(pattern=[[3, 3], [1, 3]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=dst, src=source, oob_mode=nisa.oob_mode.skip)
        return output(dst)

    got = run(kernel, table, rows)
    assert got.dtype == np.int32
    assert np.array_equal(got, [table[1], [-1, -1, -1], table[0]])


@pytest.mark.parametrize("start", [0, 5, -3, 2**31 - 2])
def test_0_4_0_iota_and_affine_select_at_an_offset_in_a_register(start):
    x = numbers(8, (6, 8))

    def kernel(x, start):
        register = nisa.register_alloc(nl.load(start))
        count, kept = nl.ndarray((6, 2, 4), dtype=nl.int32), nl.ndarray((6, 8), dtype=nl.float32)
        nisa.iota(count, [[10, 2], [1, 4]], offset=register, channel_multiplier=-2)
        select = {"on_true_tile": nl.load(x), "on_false_value": -7, "cmp_op": nl.greater}
        nisa.affine_select(kept, [[-1, 8]], 1, offset=register, **select)
        return output(count), output(kept)

    count, kept = run(kernel, x, np.array([[start]], np.int32))
    p, w, c = np.ogrid[:6, :2, :4]
    assert np.array_equal(count, (start + 10 * w + c - 2 * p).astype(np.int64).astype(np.int32))
    p, c = np.ogrid[:6, :8]
    affine = (start + p - c).astype(np.int64).astype(np.int32)
    assert np.array_equal(kept, np.where(affine > 0, x, np.float32(-7)))


def test_0_4_0_device_print_of_one_dimension(capsys):
    def kernel(x):
        nl.device_print("line", x)
        return output(nl.load(x))

    run(kernel, np.arange(6, dtype=np.float32))
    assert "line" in capsys.readouterr().out


@pytest.mark.parametrize("mode", nisa.oob_mode)
def test_0_5_0_dma_copy_of_packed_types_out_of_bounds(mode):
    bits = np.random.default_rng(17).integers(0, 2**31, (6, 5)).astype(np.uint32)
    rows = np.array([[5], [6], [0]], np.int32)

    def kernel(table, rows):
        dst = nl.ndarray((3, 5), dtype=nl.uint32)
        nisa.memset(dst=dst, value=7)
        source = table.view(nl.float8_e4m3fn_x4)
        source = source.ap([[5, 3], [1, 5]], vector_offset=nl.load(rows), indirect_dim=0)
        nisa.dma_copy(dst=dst.view(nl.float8_e4m3fn_x4), src=source, oob_mode=mode)
        return output(dst)

    if mode is nisa.oob_mode.error:
        with pytest.raises(OutOfBoundsError, match="6"):
            run(kernel, bits, rows, platform="trn3")
        return
    want = [bits[5], np.full(5, 7), bits[0]]
    assert np.array_equal(run(kernel, bits, rows, platform="trn3"), want)


def test_0_5_0_convolution_by_matmuls_of_shifted_windows():
    """Operands of three dimensions that are windows into a larger tile."""
    image, weight = numbers(18, (10, 9, 8)), numbers(19, (10, 3, 3, 6))

    def kernel(image, weight):
        x, w = nl.load(image), nl.load(weight)
        dst = nl.ndarray((6, 7, 6), dtype=nl.float32, buffer=nl.psum)
        for i in range(3):
            for j in range(3):
                window = x[:, i : i + 7, j : j + 6]
                nisa.nc_matmul(dst=dst, stationary=w[:, i, j], moving=window)
        return output(nl.copy(dst))

    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (3, 3), (1, 2))
    want = np.einsum("chwij,cijo->ohw", windows, weight)
    assert np.allclose(run(kernel, image, weight), want, rtol=1e-5, atol=1e-4)


# ---- the page -----------------------------------------------------------------------------------


def rows():
    lines = PAGE.read_text().partition("## Release notes")[2].splitlines()
    return [[c.strip() for c in ln.strip("|").split("|")] for ln in lines if ln.startswith("| ")][
        1:
    ]


def test_the_page_names_tests_that_exist_or_a_reason():
    for release, note, answer in rows():
        named = re.findall(r"`(tests/[\w/.]+)::(\w+)`", answer)
        assert named or answer.startswith(("Can't apply: ", "Open: ")), (release, note)
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_every_test_of_a_note_is_on_the_page():
    text = PAGE.read_text()
    for test in re.findall(r"^def (test_\d\w+)\(", Path(__file__).read_text(), re.MULTILINE):
        assert f"test_release_notes.py::{test}`" in text, test
