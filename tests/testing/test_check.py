"""What check_kernel promises: who sees which arrays, in which order, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError
from nki_dist.testing import Case, Limits, check_kernel, trial
from tests.testing.checked import CASE, wrong
from tests.testing.test_right_kernels import double, update
from tests.testing.wrong_kernels import (
    adds_a_little,
    both_cores_the_first_half,
    counts_its_traces,
    doubled,
    output,
)

# ---- the reference ------------------------------------------------------------------------------


def test_the_reference_gets_float64_copies_and_integers_as_they_are() -> None:
    seen = []

    def reference(x: Any, n: Any) -> Any:
        seen.append((x.dtype, n.dtype))
        result = 2 * x
        x[...] = n[...] = 0  # its own copies
        return result

    @nki.jit
    def kernel(x, n):
        out = output(x)
        nl.store(out, nl.multiply(nl.load(x), 2.0))
        return out

    case = Case({"x": (3, 4), "n": (2, 2)}, {"x": "bfloat16", "n": "int16"})
    check_kernel(kernel, reference, case)
    assert set(seen) == {(np.dtype(np.float64), np.dtype(np.int16))}
    arrays = (np.ones((3, 4), np.float32), np.ones((2, 2), np.int8))
    check_kernel(kernel, reference, arrays, upcast=False)
    assert seen[-1] == (np.dtype(np.float32), np.dtype(np.int8))
    assert arrays[0].all() and arrays[1].all()


def test_the_kernel_runs_before_the_reference_of_the_same_data() -> None:
    order = []

    @nki.jit
    def kernel(x):
        order.append("kernel")
        return double.fn(x)

    def reference(x: Any) -> Any:
        order.append("reference")
        return 2 * x

    check_kernel(kernel, reference, CASE, seeds=(0,), data=("normal",), lnc=(1, 2))
    assert order.index("reference") > order.index("kernel")
    assert order.count("reference") == 1


def test_functions_of_numpy_are_references() -> None:
    """They have no parameters of the kernel's names, so arrays go in order."""

    @nki.jit
    def exponential(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nl.store(out, tile)
        return out

    case = Case(shapes={"x": (32, 24)}, data="normal")
    assert check_kernel(exponential, np.exp, [case], lnc=1).ok
    assert not check_kernel(exponential, np.tanh, [case], lnc=1, raises=False).ok


def test_exceptions_of_the_reference_are_not_blamed_on_the_kernel() -> None:
    def reference(x: Any) -> Any:
        return x / 0 + {}["missing"]

    message = r"the reference raised KeyError: 'missing'; case x=13x7 data=normal seed=0"
    with pytest.raises(LaunchError, match=message) as caught:
        check_kernel(double, reference, CASE)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_reference_that_refuses_changed_inputs_allows_no_more() -> None:
    def reference(x: Any) -> Any:
        if not np.array_equal(x, x.astype(np.float32)):
            raise ValueError("not float32")
        return 2 * x

    assert wrong(adds_a_little, reference, CASE).failures[0].code == "wrong-value"


@pytest.mark.parametrize("result", ["text", np.array([None]), 1j])
def test_results_that_are_no_numbers(result: Any) -> None:
    with pytest.raises(LaunchError, match="the reference returned"):
        check_kernel(double, lambda x: result, CASE)


# ---- dtypes -------------------------------------------------------------------------------------


def test_which_dtypes_an_output_may_have() -> None:
    @nki.jit
    def converted(x, dtype):
        tile = nl.ndarray(x.shape, dtype=dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=nl.load(x))
        out = output(x, dtype)
        nl.store(out, tile)
        return out

    def codes(dtype: Any, want: Any, inputs: str = "bfloat16", **options: Any) -> set[str]:
        case = Case({"x": (3, 4)}, inputs, "zeros", kwargs={"dtype": dtype})
        report = check_kernel(
            converted, lambda x: np.rint(x).astype(want), case, raises=False, **options
        )
        return {f.code for f in report.failures} - {"wrong-value"}

    assert codes(nl.bfloat16, np.float64) == set()
    assert codes(nl.float32, np.float64) == {"wrong-dtype"}
    assert codes(nl.float32, np.float32) == set()
    assert codes(nl.bfloat16, np.float32) == {"wrong-dtype"}
    assert codes(nl.float32, np.float64, output_dtypes="float32") == set()
    assert codes(nl.float32, np.float64, output_dtypes=["float32"]) == set()
    assert codes(nl.bfloat16, np.float64, output_dtypes=nl.float32) == {"wrong-dtype"}
    assert codes(nl.uint8, np.bool_) == set() and codes(nl.float32, np.bool_) == {"wrong-dtype"}
    assert codes(nl.int8, np.int64) == codes(nl.int8, np.int8) == set()
    assert codes(nl.int8, np.int32) == codes(nl.float32, np.int64) == {"wrong-dtype"}
    assert codes(nl.float16, np.float64, inputs="int8") == set()


# ---- options ------------------------------------------------------------------------------------


def test_what_a_case_says_counts_more() -> None:
    loose = Case({"x": (13, 7)}, rtol=1e-2, limits=Limits(time_us=1e9))
    strict = {"rtol": 0.0, "limits": Limits(time_us=0.001)}
    assert check_kernel(adds_a_little, doubled, loose, **strict).ok
    codes = {f.code for f in wrong(adds_a_little, doubled, CASE, **strict).failures}
    assert codes == {"wrong-value", "too-slow"}


@pytest.mark.parametrize("limit", ["sbuf_bytes", "hbm_bytes", "time_us"])
def test_limits_are_what_may_just_be_used(limit: str) -> None:
    used = getattr(check_kernel(double, doubled, CASE).results[0], limit)
    assert check_kernel(double, doubled, CASE, limits=Limits(**{limit: used})).ok
    report = wrong(double, doubled, CASE, limits=Limits(**{limit: used * 0.999}))
    assert {f.code for f in report.failures} <= {"too-slow", "too-much-memory"}


def test_psum_has_a_limit_too() -> None:
    def product(a: Any, b: Any) -> Any:
        return a.T @ b

    @nki.jit
    def kernel(a, b):
        result = nl.matmul(nl.load(a), nl.load(b), transpose_x=True)
        out = nl.ndarray(result.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(result))
        return out

    case = Case({"a": (16, 8), "b": (16, 40)})
    used = check_kernel(kernel, product, case).results[0].psum_bytes
    assert used
    report = wrong(kernel, product, case, limits=Limits(psum_bytes=used - 1))
    assert {f.code for f in report.failures} == {"too-much-memory"}


def test_numbers_of_cores() -> None:
    assert {r.lnc for r in check_kernel(double[2], doubled, CASE).results} == {2}
    assert {r.lnc for r in check_kernel(double[2], doubled, CASE, lnc=1).results} == {1}
    assert check_kernel(both_cores_the_first_half, doubled, Case({"x": (4, 4)})).ok
    report = wrong(both_cores_the_first_half, doubled, Case({"x": (4, 4)}), lnc=[1, 2])
    assert {r.lnc for r in report.results if not r.ok} == {2}


def test_the_environment_says_how_many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert {r.lnc for r in check_kernel(double, doubled, CASE).results} == {2}


def test_platforms() -> None:
    assert check_kernel(double, doubled, CASE, platform="trn3").platform == "trn3"
    on_trn1 = nki.jit(double, platform_target="trn1")
    assert check_kernel(on_trn1, doubled, CASE).platform == "trn1"


def test_arrays_of_the_caller_are_only_read() -> None:
    cache, x = np.zeros((9, 4), np.float32), np.ones((4, 4), np.float32)

    def reference(cache: Any, x: Any) -> None:
        cache[4:8] = x

    check_kernel(update, reference, {"cache": cache, "x": x}, writes=("cache",))
    assert not cache.any()


def test_what_a_kernel_does_to_the_callers_arrays_changes_nothing() -> None:
    mine = np.ones((3, 4), np.float32)

    @nki.jit
    def tampers(x):
        mine[...] = 0
        out = output(x)
        nl.store(out, nl.multiply(nl.load(x), 0.0))
        return out

    worst = wrong(tampers, doubled, (mine,)).results[0].worst
    assert worst is not None and worst.wanted == 2


def test_one_array_given_twice_stays_one() -> None:
    @nki.jit
    def onto_itself(a, b):
        nl.store(a[0:1], nl.load(b[1:2]))

    def reference(a: Any, b: Any) -> None:
        a[0:1] = b[1:2]
        assert a is b

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    check_kernel(onto_itself, reference, (x, x), writes=("a",))


def test_ranks_may_get_explicit_arrays() -> None:
    shards = [np.full((3, 4), n, np.float32) for n in range(3)]
    calls = []

    def reference(x: Any) -> Any:
        calls.append(x)
        return [2 * each for each in x]

    check_kernel(double, reference, (nki.per_rank(shards),), ranks=3)
    assert [each[0, 0] for each in calls[0]] == [0, 1, 2]
    with pytest.raises(LaunchError, match="returned ndarray for 3 ranks"):
        check_kernel(double, lambda x: np.stack(x), (nki.per_rank(shards),), ranks=3)
    report = wrong(double, lambda x: [2 * x[0], 2 * x[1], x[2]], (nki.per_rank(shards),), ranks=3)
    assert "elements of output of rank 2 differ" in report.failures[0].message


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "cases": ({"cases": []}, "no cases"),
    "a case": ({"cases": [np.ones(3)]}, "ndarray as a case; allowed: a Case, a tuple"),
    "reference": ({"reference": 3}, "a reference is a function, got 3"),
    "seeds": ({"seeds": ()}, "at least one entry"),
    "data": ({"data": ("gaussian",)}, "allowed: normal, wide"),
    "lnc": ({"lnc": (1, 3)}, "allows 1 to 2 physical cores"),
    "no lnc": ({"lnc": ()}, "no number of cores"),
    "grid": ({"kernel": double[(2, 2)], "lnc": 1}, "leave lnc out"),
    "policy": ({"check": "unwritten=perhaps"}, "zero"),
    "writes": ({"writes": ("y",)}, "y is no argument with arrays; there are x"),
    "timeout": ({"timeout": 0}, "timeout=0"),
    "platform": ({"platform": "trn9"}, "trn9"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    options, message = REFUSED[what]
    given = {"kernel": double, "reference": doubled, "cases": CASE, **options}
    with pytest.raises(nki.errors.NkiError, match=message):
        check_kernel(given.pop("kernel"), given.pop("reference"), given.pop("cases"), **given)


# ---- state --------------------------------------------------------------------------------------


def test_other_bits_for_the_same_inputs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator repeats itself, so a world that doesn't is put in its place."""

    class Forgetful(nki.World):
        launches = 0

        def run(self, *args: Any, **kwargs: Any) -> Any:
            run = super().run(*args, **kwargs)
            self.launches += 1
            if self.launches == 3:
                run.outputs[0][2, 1] += 1
            return run

    monkeypatch.setattr(trial, "World", Forgetful)
    report = wrong(double, doubled, CASE, seeds=(0, 1), data=("normal",))
    (failure,) = report.failures
    assert failure.code == "not-repeatable" and "1 elements, the first of output" in failure.message
    assert failure in report.results[0].failures


def test_programs_that_vary_are_not_compared_any_further() -> None:
    assert {f.code for f in wrong(counts_its_traces, doubled, CASE).failures} == {"program-varies"}
