"""Cases: made data is reproducible, different everywhere, and within its dtype; odd shapes."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_dist.errors import LaunchError
from nki_dist.testing import Case, integers, odd_shapes, odd_sizes
from nki_dist.testing.cases import DATA, DISTRIBUTIONS


def made(case: Case, rank: int = 0) -> dict[str, Any]:
    args, kwargs = case.inputs(rank)
    assert not args
    return kwargs


def test_data_is_the_same_for_a_seed_and_different_otherwise() -> None:
    case = Case({"x": (5, 7), "y": (5, 7)}, seed=3, data="normal")
    first, again = made(case), made(case)
    assert np.array_equal(first["x"], again["x"])
    others = [
        first["y"],
        made(Case({"x": (5, 7)}, seed=4))["x"],
        np.abs(made(Case({"x": (5, 7)}, seed=3, data="positive"))["x"]),
        made(case, rank=1)["x"],
    ]
    for other in others:
        assert not np.isin(other, first["x"]).any()


def test_data_of_a_seed_never_changes() -> None:
    """A seed in an old report must mean the same arrays for ever."""
    x = made(Case({"x": (2, 3)}, seed=1))["x"]
    rng = np.random.default_rng([1, zlib.crc32(b"x normal"), 0])
    assert np.array_equal(x, rng.standard_normal((2, 3)).astype(np.float32))


def test_distributions_are_what_they_are_called() -> None:
    def values(data: str, dtype: Any = "float32") -> Any:
        return made(Case({"x": (40, 50)}, dtype, data))["x"].astype(np.float64)

    assert (values("negative") < 0).all() and (values("positive") > 0).all()
    assert 0.4 < (values("zeros") == 0).mean() < 0.6
    assert np.abs(values("wide")).max() > 30 and np.median(np.abs(values("wide"))) < 3
    special = values("special")
    assert np.isnan(special).any() and np.isposinf(special).any() and np.isneginf(special).any()
    assert set(DATA) < set(DISTRIBUTIONS)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("data", ["wide", "negative"])
def test_values_stay_within_their_dtype(dtype: str, data: str) -> None:
    x = made(Case({"x": (40, 50)}, dtype, data))["x"].astype(np.float64)
    assert np.isfinite(x).all()
    if data == "negative" and dtype != "uint8":
        assert (x < 0).all()


def test_dtypes_and_data_by_name() -> None:
    case = Case({"x": (3, 4), "n": (5, 1)}, {"n": "int32"}, {"n": integers(2, 6)})
    arrays = made(case)
    assert arrays["x"].dtype == np.float32 and arrays["n"].dtype == np.int32
    assert set(arrays["n"].ravel()) <= {2, 3, 4, 5}
    in_order = Case([(3, 4), (5, 1)], ["bfloat16", "uint8"], args=(7,))
    (x, n, seven), kwargs = in_order.inputs()
    assert x.dtype == ml_dtypes.bfloat16 and n.dtype == np.uint8 and seven == 7 and not kwargs


def test_variants_fill_in_what_is_open() -> None:
    def variants(case: Case) -> list[tuple[Any, Any]]:
        return [(v.data, v.seed) for v in case.variants((0, 1), ("normal", "wide"))]

    assert len(variants(Case({"x": (1, 1)}))) == 4
    assert variants(Case({"x": (1, 1)}, data="zeros")) == [("zeros", 0), ("zeros", 1)]
    assert variants(Case({"x": (1, 1)}, seed=9)) == [("normal", 9), ("wide", 9)]
    assert variants(Case(args=(1,))) == [(None, None)]
    mixed = variants(Case({"x": (1, 1), "y": (1, 1)}, data={"y": "positive"}, seed=0))
    assert [d for d, _ in mixed] == [
        {"x": "normal", "y": "positive"},
        {"x": "wide", "y": "positive"},
    ]
    assert len(variants(Case({"y": (1, 1)}, data={"y": "positive"}))) == 2


def test_a_case_tells_what_it_is() -> None:
    case = Case({"x": (3, 4)}, "bfloat16", seed=5, kwargs={"scale": 2.0}, name="small")
    assert str(case) == "small x=3x4 bfloat16 scale=2.0"
    assert case.data_text == "data=normal seed=5"
    assert Case({"n": (3,)}, data={"n": integers(0, 4)}).data_text == "data=n:integers(0, 4) seed=0"


REFUSED = {
    "shape": (lambda: Case({"x": (3, 0)}), r"shape \(3, 0\) of x; allowed: a tuple of positive"),
    "shape of text": (lambda: Case({"x": "3x4"}), "allowed: a tuple of positive"),
    "dtype": (lambda: Case({"x": (3,)}, "float33"), "float33"),
    "packed": (lambda: Case({"x": (3,)}, "float8_e5m2_x4"), "no random data"),
    "data": (lambda: Case({"x": (3,)}, data="gaussian"), "allowed: normal, wide"),
    "unknown name": (lambda: Case({"x": (3,)}, {"y": "int8"}), "y has no shape"),
    "seed": (lambda: Case({"x": (3,)}, seed=-1), "seed=-1"),
    "dtypes": (lambda: Case([(3,), (4,)], ["int8"]), "1 dtypes for 2 shapes"),
    "range": (lambda: integers(4, 4), "no integer from 4 to 3"),
    "function": (
        lambda: Case({"x": (3,)}, data=lambda rng, shape, dtype: rng.random(4)).inputs(),
        r"shape \(4,\), asked for \(3,\)",
    ),
    "size": (lambda: odd_sizes(0), "positive int"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    call, message = REFUSED[what]
    with pytest.raises(Exception, match=message) as caught:
        call()
    assert isinstance(caught.value, LaunchError) or what == "dtype"


def test_odd_sizes_are_neighbours_primes_and_one() -> None:
    assert odd_sizes(128) == [1, 89, 127, 129]
    assert odd_sizes(512) == [1, 383, 511, 513]
    assert odd_sizes(1) == [2] and odd_sizes(2) == [1, 3]


def test_odd_shapes_change_one_axis_and_then_all() -> None:
    shapes = odd_shapes((128, 512))
    assert shapes[0] == (128, 512) and len(set(shapes)) == len(shapes)
    assert {(1, 512), (127, 512), (129, 512), (128, 1), (128, 511), (128, 513)} < set(shapes)
    assert {(1, 1), (129, 513), (89, 383)} < set(shapes)
    only_rows = odd_shapes((128, 512), axes=[0])
    assert {n for _, n in only_rows} == {512} and len(only_rows) == 5
    assert odd_shapes((128, 512), axes=[-1])[1] == (128, 1)
