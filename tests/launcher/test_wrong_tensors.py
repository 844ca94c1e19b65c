"""Tensors that stay in HBM: what is refused, and what is left by launches that fail."""

import copy
import gc
import pickle
import warnings
import weakref

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist import errors
from tests.launcher import resident_kernels as R
from tests.launcher.resident_kernels import BOTH, A, B, at, same


@pytest.fixture(scope="module", params=["inprocess", "ray"])
def world(request):
    with nki.World(ranks=2, lnc=1, host=request.param) as made:
        yield made


# ---- wrong use -----------------------------------------------------------------------------------


def test_freed(world):
    x, y = world.put(A, name="x"), world.put(A)
    x.free()
    x.free()
    for use in (
        x.numpy,
        lambda: x.write_from_numpy(A),
        lambda: world.run(R.added, x, y),
        lambda: world.run(R.add_into, x, y),
        lambda: world.record(R.added, x, y),
    ):
        with pytest.raises(errors.LaunchError, match="tensor x was freed") as caught:
            use()
        assert caught.value.code == "tensor-freed"
    same(y.numpy(), [A, A])  # a launch that was refused has written nothing


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_a_closed_world(host):
    with nki.World(host=host) as gone:
        x = gone.put(A)
        unread = gone.run(R.added, x, x)
    for use in (
        x.numpy,
        unread.numpy,
        lambda: x.write_from_numpy(A),
        lambda: gone.put(A),
        lambda: gone.run(R.added, x, x),
        lambda: gone.record(R.added, x, x),
    ):
        with pytest.raises(errors.LaunchError) as caught:
            use()
        assert caught.value.code == "world-closed"
    x.free()


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_a_world_that_nobody_has_any_more(host):
    lost = nki.World(host=host)
    x = lost.put(A)
    lost.run(R.added, x, x).numpy()
    known = weakref.ref(lost)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del lost
        gc.collect()
    assert known() is None, "its tensors don't keep a world"
    with pytest.raises(errors.LaunchError, match=r"keep the nki.World as long as its tensors"):
        x.numpy()
    x.free()


def test_another_world(world):
    x, alone = world.put(A, name="x"), nki.DeviceTensor.from_numpy(A, name="alone")
    with nki.World(ranks=2, host="inprocess") as other:
        with pytest.raises(errors.LaunchError, match="tensor x is in another world"):
            other.run(R.added, x, x)
        with pytest.raises(errors.LaunchError, match="alone was made outside of a world"):
            other.run(R.added, alone, alone)
    with pytest.raises(errors.LaunchError, match="tensor x is in another world"):
        R.added(x, x)
    same(world.run(R.added, world.put(nki.per_rank(x.numpy())), x).numpy(), [2 * A] * 2)


def test_another_shape_or_dtype(world):
    x = world.put(A, name="x")
    for wrong in (A[:3], A.T, A.astype(np.int32), A.reshape(-1)):
        with pytest.raises(errors.TensorSizeError, match=r"Size mismatch.*for tensor x of shape"):
            x.write_from_numpy(wrong)
    with pytest.raises(errors.LaunchError, match=r"\(4, 6\) float32 on rank 0 and \(2, 6\)"):
        x.write_from_numpy(nki.per_rank([A, A[:2]]))
    same(x.numpy(), [A, A])


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        ([1.0, 2.0], errors.LaunchError, "list for tensor refused; allowed: an array"),
        (3.0, errors.LaunchError, "float for tensor refused"),
        (None, errors.LaunchError, "NoneType for tensor refused"),
        (nki.TensorSpec((4, 6), nl.float32), errors.LaunchError, "make the world dry"),
        (A.astype(np.float64), errors.NkiValidationError, "float64, which NKI has no type for"),
        (nki.per_rank([A]), errors.LaunchError, "per_rank has 1 entries, the world 2 ranks"),
        (nki.per_rank([A, A[:2]]), errors.LaunchError, "all ranks have one shape and dtype"),
        (nki.per_rank([A, B.astype(np.int32)]), errors.LaunchError, "int32 on rank 1"),
    ],
)
def test_what_cannot_be_put(world, value, error, says):
    with pytest.raises(error, match=says):
        world.put(value, name="refused")
    assert "refused" not in [t.name for t in world.residents()]


def test_one_that_is_put_again(world):
    with pytest.raises(errors.LaunchError, match="DeviceTensor for tensor y"):
        world.put(world.put(A), name="y")


@pytest.mark.parametrize("mixed", [False, True])
def test_per_rank_of_tensors(world, mixed):
    """Each has a part for every rank; taking that of rank 0 for all would be a wrong result."""
    x, y = world.put(A, name="x"), world.put(B, name="y")
    for rank, values in enumerate(([x, A], [A, y])) if mixed else [(0, [x, y])]:
        with pytest.raises(errors.LaunchError, match=rf"per_rank has .* for rank {rank}"):
            world.run(R.added, nki.per_rank(values), A)
    with pytest.raises(errors.LaunchError, match=r"per_rank has DeviceTensor.*name=x\) for rank 0"):
        world.run(lambda pair: R.added.fn(*pair), nki.per_rank([[x, x], [y, y]]))


def test_python_on_tensors(world):
    x = world.put(A, name="x")
    for use in (np.asarray, np.sum, lambda t: A + t):
        with pytest.raises(errors.LaunchError, match=r"write tensor.numpy\(\)"):
            use(x)
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(errors.LaunchError, match="can't be copied or pickled"):
            use(x)
    assert repr(x) == "DeviceTensor(shape=(4, 6), dtype=float32, name=x)"


# ---- launches that fail --------------------------------------------------------------------------


def test_what_a_failed_launch_was_to_write(world):
    x, y, fine = world.put(BOTH, name="x"), world.put(A, name="y"), world.put(A)
    with pytest.raises(errors.OutOfBoundsError, match="run-time index 77"):
        world.run(R.put_row, x, A[:1], nki.per_rank([at(1), at(77)]))
        world.wait()
    for use in (
        x.numpy,
        lambda: world.run(R.added, x, y).numpy(),
        lambda: (world.run(R.add_into, x, y), y.numpy()),
        lambda: world.record(R.added, x, y),
    ):
        with pytest.raises(errors.OutOfBoundsError, match=r"tensor x has no value.*put_row.*index"):
            use()
    same(y.numpy(), [A, A])  # of a launch that hasn't begun
    same(world.run(R.added, fine, y).numpy(), [2 * A] * 2)  # others run
    x.write_from_numpy(B)
    same(world.run(R.added, x, y).numpy(), [A + B] * 2)


def test_results_of_a_failed_launch(world):
    x = world.put(A)
    with pytest.raises(errors.OutOfBoundsError):
        world.run(R.picked, x, at(99)).numpy()
    same(world.run(R.picked, x, nki.per_rank([at(3), at(1)])).numpy(), [A[3:4], A[1:2]])


def test_what_can_be_put_again_has_its_old_value_after_a_failure(world):
    x = world.put(BOTH, name="x", restore=True)
    with pytest.raises(errors.OutOfBoundsError):
        world.run(R.put_row, x, A[:1], nki.per_rank([at(1), at(77)]))
        world.wait()
    same(x.numpy(), [A, B])
    world.run(R.put_row, x, A[:1], at(2))  # now it's written: there is no old value
    with pytest.raises(errors.OutOfBoundsError):
        world.run(R.put_row, x, A[:1], at(77))
        world.wait()
    with pytest.raises(errors.OutOfBoundsError, match="tensor x has no value"):
        x.numpy()


@pytest.mark.parametrize("made", [A[:2], np.ones((400, 6), np.float32), A.astype(np.int32)])
def test_what_is_put_again_is_what_it_was(world, made):
    """Another size would be written over the neighbours."""
    beside = [world.put(B) for _ in range(3)]
    x = world.put(A, name="x", restore=lambda: made)
    beside += [world.put(B) for _ in range(3)]
    with pytest.raises(errors.OutOfBoundsError):
        world.run(R.put_row, x, A[:1], at(77))
        world.wait()
    with pytest.raises(errors.TensorSizeError, match="for tensor x of shape"):
        x.numpy()
    for tensor in beside:
        same(tensor.numpy(), [B, B])


def test_a_host_write_that_is_interrupted_leaves_no_half(world, monkeypatch):
    x = world.put(A, name="x", restore=True)
    write = world.host.write

    def interrupted(place, values):
        write(place, [values[0], np.ascontiguousarray(A).reshape(-1).view(np.uint8)])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(world.host, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            x.write_from_numpy(B)
    with pytest.raises(errors.LaunchError, match=r"x has no value, as write_from_numpy.*interrupt"):
        x.numpy()
    x.write_from_numpy(B)
    same(x.numpy(), [B, B])
