"""Running kernels that were saved: same results, and arrays that don't fit are refused."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import LaunchError, NkiValidationError, RaceError
from tests.hosts.test_races import scatter_rows

X = np.arange(15, dtype=np.float32).reshape(3, 5)


def affine(x, shift, factor):
    tile = nl.load(x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(shift), op=nl.add)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return {"out": out}


def world(ranks=1, lnc=1, **options):
    return nki.World(ranks, lnc, "trn2", "inprocess", **options)


def saved(tmp_path, kernel, *args, ranks=1, lnc=1):
    path = tmp_path / "kernel.nki-dist"
    with world(ranks, lnc) as w:
        w.compile(kernel, *args).save(path)
    return Compiled.load(path)


def test_a_saved_kernel_gives_what_the_kernel_gives(tmp_path):
    loaded = saved(tmp_path, affine, X, X + 1, 3.0)
    with world() as w:
        for x in (X, X * 7):  # the second launch is warm
            np.testing.assert_array_equal(w.run(loaded, x, X)[0]["out"], (x + X) * 3)
        assert w.run(loaded, X, X, profile=True).profile.total_us > 0
        other = saved(tmp_path, affine, X, X + 1, 5.0)
        np.testing.assert_array_equal(w.run(other, X, X)[0]["out"], 2 * X * 5)


def total(x):
    src, dst = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    nisa.dma_copy(dst=src, src=x)
    ncc.all_reduce([src], [dst], [[0, 1]], nl.add)
    return dst


def test_ranks_have_arrays_of_their_own(tmp_path):
    loaded = saved(tmp_path, total, X, ranks=2)
    with world(2) as w:
        found = w.run(loaded, nki.per_rank([X, 10 * X]))
    for out in found:
        np.testing.assert_array_equal(out, 11 * X)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([X], r"1 arrays for kernel affine, which takes 2: x \(3, 5\) float32, shift \(3, 5\)"),
        ([X, X[:, :4]], r"shape \(3, 4\) and dtype float32 for shift \(3, 5\) float32"),
        ([X, X.astype(np.int32)], r"shape \(3, 5\) and dtype int32 for shift \(3, 5\) float32"),
        ([X, 3.0], r"3.0 of type float for shift .*; a compiled kernel takes arrays only"),
        ([X, [X] * 50], r"^.{,400} of type list for shift"),
        ([X, np.ma.masked_array(X, X > 3)], r"argument shift is a masked array.*\.filled"),
    ],
)
def test_other_arrays_are_refused(tmp_path, arrays, message):
    loaded = saved(tmp_path, affine, X, X + 1, 3.0)
    with world() as w, pytest.raises(LaunchError, match=message):
        w.run(loaded, *arrays)


def test_an_unknown_dtype_is_refused_as_of_a_kernel(tmp_path):
    loaded = saved(tmp_path, affine, X, X + 1, 3.0)
    wide = X.astype(np.float64)
    with world() as w:
        raised = []
        for kernel, rest in ((loaded, ()), (affine, (3.0,))):
            with pytest.raises(NkiValidationError, match=r"shift of affine has .*float32") as e:
                w.run(kernel, X, wide, *rest)
            raised.append(e.value)
    one, other = raised
    assert (one.message, one.code, one.location) == (other.message, other.code, other.location)
    assert one.location is not None and one.location.startswith(__file__ + ":")


def moved(x, y):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(y, tile)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out


@pytest.mark.parametrize("shared", ["object", "view", "overlap", "torch"])
def test_a_written_input_shares_memory_with_no_other(tmp_path, shared):
    loaded = saved(tmp_path, moved, X, X + 1)
    whole = np.arange(20, dtype=np.float32).reshape(4, 5)
    x, y = whole[:3], {"view": whole[:3], "overlap": whole[1:]}.get(shared)
    if y is None:
        y = x
    if shared == "torch":
        torch = pytest.importorskip("torch")
        x = torch.from_numpy(x)
        y = x.view(3, 5)
    before = whole.copy()
    with world() as w, pytest.raises(LaunchError, match=r"x and y of .* writes y.*a copy") as e:
        w.run(loaded, x, y)
    assert e.value.code == "loaded-kernel" and e.value.location.startswith(__file__ + ":")
    np.testing.assert_array_equal(whole, before)


def test_inputs_that_are_apart_or_only_read_may_share_an_array(tmp_path):
    with world() as w:
        loaded = saved(tmp_path, affine, X, X + 1, 3.0)
        np.testing.assert_array_equal(w.run(loaded, X, X)[0]["out"], 6 * X)
        pair = np.zeros((3, 10), np.float32)
        w.run(saved(tmp_path, moved, X, X + 1), pair[:, ::2], pair[:, 1::2])  # no byte in common
    np.testing.assert_array_equal(pair, np.tile(np.float32([0, 1]), (3, 5)))


def test_what_is_no_tensor_is_part_of_the_kernel(tmp_path):
    loaded = saved(tmp_path, affine, X, X + 1, 3.0)
    with world() as w, pytest.raises(LaunchError, match="factor: a compiled kernel takes its"):
        w.run(loaded, X, X, factor=2.0)


def test_the_world_has_the_kernels_cores_and_platform(tmp_path):
    loaded = saved(tmp_path, affine, X, X + 1, 3.0)
    with (
        world(lnc=2) as w,
        pytest.raises(LaunchError, match=r"for 1 cores of trn2, .* ranks of 2 of trn2.*lnc=1"),
    ):
        w.run(loaded, X, X)
    with (
        nki.World(1, 1, "trn1", "inprocess") as w,
        pytest.raises(LaunchError, match=r"1 of trn1: .*platform='trn2'"),
    ):
        w.run(loaded, X, X)


def test_a_file_that_hides_what_may_race_is_watched_all_the_same(tmp_path):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    index = np.array([[[0], [1], [2]], [[2], [3], [4]]], np.int32)
    path = tmp_path / "kernel.nki-dist"
    with world(lnc=2) as w:
        compiled = w.compile(scatter_rows, x, index)
        assert all(p.facts["watched"] for p in compiled.programs)
        for p in compiled.programs:
            p.facts["watched"] = []
        compiled.save(path)
        with pytest.raises(RaceError, match="nothing orders a store"):
            w.run(Compiled.load(path), x, index)
