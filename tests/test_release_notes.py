"""What the release notes of NKI in SDK 2.20 to 2.27 announce, one test per note.

Notes that other tests cover, and notes that can't apply to a simulator, are rows of
docs/releases.md; the last tests here check that page.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.isa.helpers import numbers, output, run

BF16 = ml_dtypes.bfloat16
ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "releases.md"


def default(function, name):
    return inspect.signature(function).parameters[name].default


# ---- 2.20 to 2.26 (Beta 1) ----------------------------------------------------------------------


def test_2_20_1_outputs_are_returned():
    def kernel(x):
        tile = nl.load(x)
        return output(tile), [output(nl.square(tile))]

    x = numbers(1, (5, 3))
    first, (second,) = run(kernel, x)
    assert np.array_equal(first, x) and np.array_equal(second, x * x)


def test_2_20_1_a_launch_grid_shards_over_cores():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        half = nl.ds(nl.program_id(0) * 3, 3)
        nisa.dma_copy(dst=out[half], src=nl.load(x[half]))
        return out

    x = numbers(2, (6, 4))
    assert np.array_equal(run(kernel, x, lnc=2), x)


def test_2_21_target_queries():
    seen = {}

    def kernel(x):
        seen["version"] = nisa.get_nc_version()
        return output(nl.load(x))

    for platform, version in (("trn1", "gen2"), ("trn2", "gen3"), ("trn3", "gen4")):
        run(kernel, numbers(3, (2, 2)), platform=platform)
        assert seen["version"] is nisa.nc_version[version]


def test_2_21_ds_slices_from_a_start():
    x = numbers(4, (7, 9))
    assert np.array_equal(
        run(lambda x: output(nl.load(x[nl.ds(2, 3), nl.ds(4, 5)])), x), x[2:5, 4:]
    )


def test_2_22_engine_can_be_chosen():
    """Where a choice is offered, what an engine can't do is refused by name."""
    x = numbers(5, (4, 6))

    def kernel(x, engine):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.tensor_tensor(dst, nl.load(x), nl.load(x), nl.add, engine=engine)
        return output(dst)

    for engine in (nisa.vector_engine, nisa.gpsimd_engine, nisa.unknown_engine):
        assert np.array_equal(run(kernel, x, engine), x + x)
    with pytest.raises(NkiValidationError, match="engine=tensor; allowed"):
        run(kernel, x, nisa.tensor_engine)


def test_2_23_range_select_needs_trn2():
    def kernel(x):
        tile, dst = nl.load(x), nl.ndarray(x.shape, dtype=nl.float32)
        nisa.range_select(dst, tile, nl.greater, nl.less, tile[:, 0:1], tile[:, 1:2])
        return output(dst)

    run(kernel, numbers(6, (3, 4)), platform="trn2")
    with pytest.raises(NkiValidationError, match="NeuronCore-v3"):
        run(kernel, numbers(6, (3, 4)), platform="trn1")


def test_2_23_gpsimd_adds_and_multiplies_32_bit_integers():
    a = np.array([[2**31 - 1, 2**24 + 1, -7]], np.int32)
    b = np.array([[-5, 3, 2**20]], np.int32)

    def kernel(a, b, op):
        dst = nl.ndarray(a.shape, dtype=nl.int32)
        nisa.tensor_tensor(dst, nl.load(a), nl.load(b), op, engine=nisa.engine.gpsimd)
        return output(dst)

    with np.errstate(over="ignore"):
        assert np.array_equal(run(kernel, a, b, nl.add), a + b)
        assert np.array_equal(run(kernel, a, b, nl.multiply), a * b)


def test_2_23_predicate_can_be_reversed():
    x, mask = numbers(7, (4, 6)), (numbers(8, (4, 6)) > 0).astype(np.uint8)

    def kernel(x, mask):
        dst = nl.full(x.shape, 9.0, dtype=nl.float32)
        nisa.tensor_copy_predicated(dst, nl.load(x), nl.load(mask), reverse_pred=True)
        return output(dst)

    assert np.array_equal(run(kernel, x, mask), np.where(mask, np.float32(9), x))


def test_2_23_adding_in_place_by_dma():
    """rmw_op of dma_copy is dma_compute today."""
    x, y = numbers(9, (4, 6)), numbers(10, (4, 6))

    def kernel(x, y):
        out = output(nl.load(x))
        nisa.dma_compute(out, [out, nl.load(y)], nl.add)
        return out

    assert np.array_equal(run(kernel, x, y), x + y)


def test_2_24_sqrt_over_the_whole_range():
    x = np.array([[0, 1e-45, 1.2e-38, 3e-20, 2, 1e30, 3.4e38, np.inf]], np.float32)

    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.activation(dst, nl.sqrt, nl.load(x))
        return output(dst)

    want = np.sqrt(x.astype(np.float64))
    assert np.allclose(run(kernel, x), want, rtol=3e-7, atol=0)


def test_2_24_match_replace_gives_positions():
    assert default(nisa.nc_match_replace8, "dst_idx") is None


def test_2_26_store_from_psum_goes_through_sbuf():
    """2.26 inserted the copy; since NKI 0.3 DMA doesn't read PSUM and the kernel copies."""
    a, b = numbers(11, (9, 5)), numbers(12, (9, 7))

    def kernel(a, b, copies):
        dst = nl.ndarray((5, 7), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst, nl.load(a), nl.load(b))
        out = nl.ndarray((5, 7), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(dst) if copies else dst)
        return out

    assert np.allclose(run(kernel, a, b, True), a.astype(np.float64).T @ b, rtol=1e-5, atol=1e-4)
    with pytest.raises(NkiValidationError, match=r"src is in psum.*allowed memories: .*sbuf"):
        run(kernel, a, b, False)


def test_2_26_gelu_apprx_sigmoid():
    x = numbers(13, (3, 50))

    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.activation(dst, nl.gelu_apprx_sigmoid, nl.load(x))
        return output(dst)

    x64 = x.astype(np.float64)
    assert np.allclose(run(kernel, x), x64 / (1 + np.exp(-1.702 * x64)), rtol=1e-5, atol=1e-7)


# ---- 2.27 ---------------------------------------------------------------------------------------


def test_2_27_instructions_write_dst_and_take_no_mask():
    plain = {"device_print", "set_rng_seed", "rand_set_state", "core_barrier", "sendrecv"}
    plain |= {"language_math", "topk"}
    for name, spec in nisa.INSTRUCTIONS.items():
        names = list(spec.signature.parameters)
        assert not {"mask", "dtype"} & set(names), name
        if name not in plain and "dst" in names:
            assert names[0] == "dst", name


def test_2_27_parameters_that_went_are_refused_by_name():
    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.memset(dst, value=0.0, shape=(2, 2))
        return output(dst)

    with pytest.raises(NkiValidationError, match="unexpected keyword argument 'shape'"):
        run(kernel, numbers(14, (2, 2)))


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
    for file in Path(__file__).parent.glob("test_release_notes*.py"):
        for test in re.findall(r"^def (test_\d\w+)\(", file.read_text(), re.MULTILINE):
            assert f"{file.name}::{test}`" in text, test
