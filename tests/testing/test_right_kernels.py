"""Right kernels pass, whatever they are made of; several of them at the limits of the rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels
from nki_dist.compat import beta1
from nki_dist.compat.beta1 import language as beta1_nl
from nki_dist.testing import Case, Report, check_kernel, integers, odd_shapes
from tests.testing.wrong_kernels import blocks, cache_reference, doubled, output, row_sums, softmax


@nki.jit
def double(x):
    out = output(x)
    for n, rows in enumerate(blocks(x.shape[0])):
        if n % nl.num_programs(0) == nl.program_id(0):
            nl.store(out[rows], nl.multiply(nl.load(x[rows]), 2.0))
    return out


def test_odd_shapes_on_one_core_and_two() -> None:
    cases = [Case({"x": shape}) for shape in odd_shapes((256, 12))]
    report = check_kernel(double, doubled, cases, lnc=(1, 2))
    assert len(report.results) == len(cases) * 4 * 2 * 2  # data, seeds, cores
    assert {r.lnc for r in report.results} == {1, 2}
    assert report.ok and "right" in str(report)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_matmul(dtype: str) -> None:
    """Sums of few and of many terms, also where they cancel."""
    shapes = [(m, k, n) for m, k, n in odd_shapes((2, 300, 3))]
    cases = [Case({"lhs": (m, k), "rhs": (k, n)}, dtype) for m, k, n in shapes]
    check_kernel(kernels.matmul, lambda lhs, rhs: lhs @ rhs, cases, seeds=(0,))


@nki.jit
def sums(x, error=0.0):
    total = nl.sum(nl.load(x), axis=1, keepdims=True)
    out = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(total, error))
    return out


def test_float32_sums_of_one_row_may_cancel() -> None:
    cases = [Case({"x": (1, 700)}, data="normal"), Case({"x": (1, 700)}, data="wide")]
    check_kernel(sums, row_sums, cases, seeds=range(20))


def test_what_is_left_of_large_terms_has_their_error() -> None:
    terms = np.random.default_rng(5).standard_normal(700).astype(np.float32)
    x = np.concatenate([terms, -terms[::-1], [1e-3]]).astype(np.float32)[None]
    result = check_kernel(sums, row_sums, (x,)).results[0]
    assert result.worst is not None and 0 < result.worst.abs_error < 1e-4
    # More than the float32 rule for 0.001 alone, and less than anything would pass with.
    assert result.worst.abs_error > 256 * 2**-24 * 2 * 1e-3
    with pytest.raises(AssertionError, match="1 of 1 elements of output differ"):
        check_kernel(sums, row_sums, Case(args=(x,), kwargs={"error": 0.01}))


def test_softmax_and_rms_norm() -> None:
    def rms_norm(x: Any, weight: Any, eps: float = 1e-6) -> Any:
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight

    cases = [Case({"x": shape}) for shape in ((130, 40), (1, 7))]
    check_kernel(kernels.softmax, softmax, cases, seeds=(0,))
    weighted = [Case({"x": s, "weight": s[1:]}, "bfloat16") for s in ((130, 40), (1, 7))]
    check_kernel(kernels.rms_norm, rms_norm, weighted, seeds=(0,))


@pytest.mark.parametrize("dtype", ["float8_e4m3", "float8_e5m2", "int8", "uint8", "int32"])
def test_small_types_and_integers(dtype: str) -> None:
    @nki.jit
    def half_of_it(x):
        tile = nl.load(x)
        out = output(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.maximum, operand0=3)
        nl.store(out, tile)
        return out

    check_kernel(half_of_it, lambda x: np.maximum(x, 3), Case({"x": (13, 21)}, dtype))


@nki.jit
def update(cache, x):
    nl.store(cache[4:8], nl.load(x))


def test_updated_in_place() -> None:
    cases = [Case({"cache": (9, 4), "x": (4, 4)})]
    check_kernel(update, cache_reference, cases, writes=("cache",))
    with pytest.raises(AssertionError, match="elements of argument cache changed"):
        check_kernel(update, cache_reference, cases)


def test_rows_by_index() -> None:
    @nki.jit
    def rows_of(table, rows):
        out = nl.ndarray((rows.shape[0], table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(out.shape, dtype=table.dtype, buffer=nl.sbuf)
        pattern = [[table.shape[1], rows.shape[0]], [1, table.shape[1]]]
        src = table.ap(pattern, vector_offset=nl.load(rows), indirect_dim=0)
        nisa.dma_copy(dst=tile, src=src)
        nl.store(out, tile)
        return out

    case = Case({"table": (20, 6), "rows": (16, 1)}, {"rows": "int32"}, {"rows": integers(0, 20)})
    report = check_kernel(rows_of, lambda table, rows: table[rows[:, 0]], case)
    assert len(report.results) == 8  # the table is tried with all data


def test_several_outputs_options_and_plain_functions() -> None:
    def both(x, factor, names=("a", "b"), tile_size=128):
        outs = {}
        for name in names:
            outs[name] = output(x)
            nl.store(outs[name], nl.multiply(nl.load(x), factor if name == "a" else -factor))
        return outs

    def reference(x: Any, factor: float) -> Any:
        return {"a": x * factor, "b": -x * factor}

    case = Case({"x": (5, 6)}, kwargs={"factor": 3.0, "tile_size": 64})
    check_kernel(both, reference, case)


def test_a_beta_1_kernel() -> None:
    @beta1.jit
    def rows(a):
        out = beta1_nl.ndarray(a.shape, dtype=a.dtype, buffer=beta1_nl.shared_hbm)
        n = a.shape[0] // beta1_nl.num_programs(0)
        i = beta1_nl.program_id(0) * n + beta1_nl.arange(n)[:, None]
        j = beta1_nl.arange(a.shape[1])[None, :]
        beta1_nl.store(out[i, j], beta1_nl.load(a[i, j]) * 2.0)
        return out

    check_kernel(rows, lambda a: 2 * a, Case({"a": (12, 5)}))
    check_kernel(rows[3], lambda a: 2 * a, Case({"a": (12, 5)}))


def test_explicit_arguments_in_every_form() -> None:
    x = np.random.default_rng(3).standard_normal((5, 6), np.float32)
    for cases in ((x,), {"x": x}, [(x,), {"x": x}], Case(args=(x,)), [Case(kwargs={"x": x})]):
        report = check_kernel(double, doubled, cases)
        assert report.ok and len(report.results) == (
            2 if isinstance(cases, list) and len(cases) == 2 else 1
        )


def test_a_tuple_is_one_case_unless_it_holds_nothing_but_cases() -> None:
    def scaled(x, factors):
        out = output(x)
        nl.store(out, nl.multiply(nl.load(x), factors[0] * factors[1]))
        return out

    def reference(x: Any, factors: Any) -> Any:
        return x * factors[0] * factors[1]

    x = np.ones((2, 3), np.float32)
    assert len(check_kernel(scaled, reference, (x, (2.0, 3.0))).results) == 1
    assert len(check_kernel(double, doubled, ((x,), {"x": x}, Case(args=(x,)))).results) == 3


def test_ranks_have_their_own_data() -> None:
    @nki.jit
    def total(x, group):
        src, dst = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm) for _ in range(2))
        nisa.dma_copy(dst=src, src=x)
        ncc.all_reduce([src], [dst], group, nl.add)
        out = output(x)
        nisa.dma_copy(dst=out, src=dst)
        return out

    def reference(x: list[Any]) -> list[Any]:
        return [sum(x)] * len(x)

    case = Case({"x": (4, 6)}, kwargs={"group": ncc.ReplicaGroup([[0, 1, 2]])})
    report = check_kernel(total, reference, case, ranks=3)
    assert report.ok
    first, second = (case.inputs(rank)[1]["x"] for rank in (0, 1))
    assert not np.array_equal(first, second)


def test_masked_elements_of_the_reference_are_not_judged() -> None:
    @nki.jit
    def first_rows(x):
        out = output(x)
        nl.store(out[0:3], nl.load(x[0:3]))
        return out

    def reference(x: Any) -> Any:
        return np.ma.masked_array(x, np.arange(len(x))[:, None] >= np.full(x.shape, 3))

    case = Case({"x": (5, 6)})
    assert check_kernel(first_rows, reference, case).ok
    report = check_kernel(first_rows, lambda x: x, case, raises=False)
    assert {f.code for f in report.failures} == {"never-stored"}


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_arrays_of_other_frameworks(framework: str) -> None:
    pytest.importorskip(framework)
    if framework == "torch":
        import torch

        x: Any = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
    else:
        import jax.numpy as jnp

        x = jnp.arange(12, dtype=jnp.bfloat16).reshape(3, 4)

    def as_given(value: Any) -> Any:
        assert type(value) is type(x)
        return value + value

    check_kernel(double, doubled, (x,))
    check_kernel(double, as_given, (x,), upcast=False)


def test_unwritten_memory_of_a_policy_may_be_used() -> None:
    @nki.jit
    def padded(x):
        tile = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:5], src=x)
        out = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    def reference(x: Any) -> Any:
        return np.concatenate([x, np.zeros((3, 6))])

    case = Case({"x": (5, 6)})

    def padded_with_nan(x: Any) -> Any:
        return np.concatenate([x, np.full((3, 6), np.nan)])

    assert check_kernel(padded, reference, case, check="unwritten=zero").ok
    assert check_kernel(padded, padded_with_nan, case, check="unwritten=nan").ok
    assert check_kernel(nki.simulate(padded, check="unwritten=zero"), reference, case).ok
    report: Report = check_kernel(padded, reference, case, raises=False)
    assert {f.type for f in report.failures} == {"UninitializedReadError"}
