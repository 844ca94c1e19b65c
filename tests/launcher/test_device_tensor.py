"""Tensors that stay in HBM: what is put, and what kernels make of it."""

from __future__ import annotations

import json
import os

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist import errors
from nki_dist.compiler.compiled import Compiled
from tests.launcher import resident_kernels as R
from tests.launcher.in_a_row import summed
from tests.launcher.resident_kernels import BOTH, A, B, at, same
from tests.programs import python


@pytest.fixture(scope="module", params=["inprocess", "ray"])
def world(request):
    with nki.World(ranks=2, lnc=1, host=request.param) as made:
        yield made


@pytest.fixture(scope="module", params=["inprocess", "ray"])
def pair(request):
    """A rank of two cores."""
    with nki.World(ranks=1, lnc=2, host=request.param) as made:
        yield made


# ---- what is put ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "array",
    [
        A.astype(ml_dtypes.bfloat16),
        A.astype(ml_dtypes.float8_e4m3fn),
        A.astype(np.int8),
        A > 7,
        A.astype(np.uint64),
        np.asfortranarray(A),
        A[::2, ::-1],
        np.broadcast_to(A[0], (3, 6)),
        np.ones((0, 3), np.float32),
        np.float32(2.5) * np.ones(1, np.float32),
        A.reshape(2, 3, 2, 2),
    ],
    ids=["bf16", "fp8", "int8", "bool", "uint64", "Fortran", "strided", "repeated", "empty", "one",
         "4 dimensions"],
)  # fmt: skip
def test_what_is_put_comes_back(world, array):
    t = world.put(array, name="t")
    assert (t.shape, t.dtype, t.nbytes, t.name) == (array.shape, array.dtype, array.nbytes, "t")
    for value in t.numpy():
        assert (value.shape, value.dtype) == (array.shape, array.dtype)
        same(value, array)


def test_each_rank_has_its_own(world):
    t = world.put(BOTH)
    same(t.numpy(), [A, B])
    t.write_from_numpy(nki.per_rank([B, A]))
    same(t.numpy(), [B, A])
    t.write_from_numpy(A)
    same(t.numpy(), [A, A])
    same(world.put(nki.per_rank(lambda rank: A + rank)).numpy(), [A, A + 1])


def test_values_that_are_read_and_put_are_copies(world):
    mine = A.copy()
    t = world.put(mine)
    mine[:] = 9
    t.numpy()[0][:] = 9
    same(t.numpy(), [A, A])
    mine[:] = A
    t.write_from_numpy(mine)
    mine[:] = 9
    same(t.numpy(), [A, A])


def test_torch(world):
    torch = pytest.importorskip("torch")
    ours = torch.arange(24, dtype=torch.bfloat16).reshape(4, 6)
    t = world.put(ours)
    assert all(torch.equal(value, ours) for value in t.torch())
    t.write_from_torch(ours + 1)
    (first, _) = world.run(R.added, t, t).torch()
    assert torch.equal(first, 2 * (ours + 1))


# ---- launches ------------------------------------------------------------------------------------


def test_results_come_back_in_kind(world):
    x, y = world.put(BOTH), world.put(B)
    z = world.run(R.added, x, y)
    assert isinstance(z, nki.DeviceTensor)
    same(z.numpy(), [A + B, B + B])
    same(world.run(R.added, x, A).numpy(), [A + A, B + A])  # an array among them
    same(world.run(R.added, nki.per_rank([B, A]), x).numpy(), [A + B, A + B])
    assert isinstance(world.run(R.added, A, A)[0], np.ndarray)
    same(world.run(R.added, z, x).numpy(), [A + B + A, B + B + B])  # a result is an argument
    same(z.numpy(), [A + B, B + B])  # and stays
    group = ncc.ReplicaGroup([[0, 1]])
    same(world.run(summed, z, group).numpy(), [A + 3 * B] * 2)


def test_what_kernels_write_they_write_in_place(world):
    x, y = world.put(A), world.put(BOTH)
    where = {t.name for t in world.residents()}
    for _ in range(3):
        assert world.run(R.add_into, x, y) is None
    same(y.numpy(), [A + 3 * A, B + 3 * A])
    same(x.numpy(), [A, A])
    assert {t.name for t in world.residents()} == where, "nothing was made"
    world.run(R.put_row, y, A[:1], nki.per_rank([at(1), at(3)]))
    wanted = [4 * A, B + 3 * A]
    wanted[0][1] = wanted[1][3] = A[0]
    same(y.numpy(), wanted)


def test_an_array_that_is_written_beside_a_tensor_is_given_back(world):
    x, mine = world.put(BOTH), [A.copy(), A.copy()]
    world.run(R.add_into, x, nki.per_rank(mine))
    same(mine, [A + A, A + B])
    shared = A.copy()
    with pytest.raises(errors.LaunchError, match="rank 1 wrote other bytes than an earlier one"):
        world.run(R.add_into, x, shared)
        world.wait()
    same(shared, A)


def test_parts_arguments_and_the_same_twice(world):
    x, y = world.put(BOTH), world.put(A)
    got = world.run(R.forms, x, y)
    assert got["argument"] is x and got["written"] is y
    assert got["again"][0] is got["out"] and got["again"][1] is x
    for rank, of in enumerate((A, B)):
        same(got["out"].numpy()[rank], 3 * of)
        same(got["part"].numpy()[rank], 3 * of[0:2, 1:4])
        same(got["part of an argument"].numpy()[rank], of[1:3])
        same(y.numpy()[rank], 3 * of)
        same(got["part of what is written"].numpy()[rank], 3 * of[2:4, 0:5])
    x.write_from_numpy(A * 7)  # parts are copies
    same(got["part of an argument"].numpy()[1], B[1:3])


def test_the_same_tensor_twice(world):
    x = world.put(BOTH)
    same(world.run(R.added, x, x).numpy(), [2 * A, 2 * B])
    world.run(R.add_into, x, x)
    same(x.numpy(), [2 * A, 2 * B])


def test_two_cores_of_a_rank(pair):
    x, y = pair.put(A), pair.put(B)
    z = pair.run(R.added, x, y)
    pair.run(R.add_into, z, y)
    same(z.numpy()[0], A + B)
    same(y.numpy()[0], A + B + B)
    got = pair.run(R.forms, x, y)
    same(got["part of what is written"].numpy()[0], 3 * A[2:4, 0:5])
    with pytest.raises(errors.RaceError):
        pair.run(R.racy, x)
        pair.wait()
    same(x.numpy()[0], A)


def test_a_loaded_kernel_takes_tensors(world, tmp_path):
    world.compile(R.added, A, B).save(tmp_path / "added.nki-dist")
    loaded = Compiled.load(tmp_path / "added.nki-dist")
    same(world.run(loaded, world.put(BOTH), world.put(A)).numpy(), [A + A, A + B])


def test_profiles_and_what_else_is_asked_about_a_launch(world):
    x, y = world.put(BOTH), world.put(A)
    run = world.run(R.added, x, y, profile=True)
    same(run.outputs.numpy(), [A + A, B + A])
    like_arrays = world.run(R.added, BOTH, A.copy(), profile=True).profile
    assert run.profile.device_us == like_arrays.device_us > 0
    assert world.estimate(R.added, x, y).device_us == like_arrays.device_us
    assert world.dry_run(R.added, x, y, profile=True).profile.device_us == like_arrays.device_us
    record = world.record(R.add_into, x, y)
    entries = record.writes("y")
    assert [e.values.tolist() for e in entries if e.rank == 1] == [(A + B).tolist()]
    assert len(world.drift(R.added, x, y).outputs) == 2
    same(y.numpy(), [A, A])  # what is only asked about writes nothing


def test_precise_fp_off_works_by_value(world, monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    x = world.put(A.astype(ml_dtypes.bfloat16))
    y = world.put(A.astype(ml_dtypes.bfloat16))
    world.run(R.add_into, x, y)
    same(y.numpy()[1], 2 * A)
    same(world.run(R.added, x, y).numpy()[1], 3 * A)


# ---- outside of a world --------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_kernels_outside_of_a_world(host, monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", host)
    x = nki.DeviceTensor.from_numpy(A, name="x")
    same(x.numpy(), A)
    y = R.added(x, A)
    z = R.added[2](y, x)  # moves them to a rank of two cores
    same(y.numpy(), 2 * A)
    same(z.numpy(), 3 * A)
    R.add_into(x, z)
    same(z.numpy(), 4 * A)
    x.write_from_numpy(B)
    same(R.added(x, x).numpy(), 2 * B)
    same(nki.record(R.added)(x, x).outputs, 2 * B)
    same(nki.drift(R.added)(x, x).outputs, 2 * B)
    assert nki.estimate(R.added)(x, x).device_us == nki.estimate(R.added)(B, B).device_us
    same(nki.profile(R.added)(x, x).outputs.numpy(), 2 * B)
    same(nki.debug(R.added)(x, x).numpy(), 2 * B)
    nki.debug(R.add_into)(x, z)
    same(z.numpy(), 4 * A + B)
    same(nki.simulate(R.added)(x, z).numpy(), 4 * A + 2 * B)


def test_one_that_has_no_room_where_it_moves_stays(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")
    x = R.added(nki.DeviceTensor.from_numpy(A), A)
    there = R.added[2]._world()
    with monkeypatch.context() as small:
        small.setattr(there.residence, "capacity", 64)
        with pytest.raises(errors.OutOfMemoryError, match=r"added.out needs 96 bytes"):
            R.added[2](x, x)
    same(x.numpy(), 2 * A)
    same(R.added[2](x, x).numpy(), 4 * A)


def test_debugged_worlds_work_by_value():
    with nki.World(ranks=2, host="debug") as world:
        x, y = world.put(BOTH), world.put(A)
        world.run(R.add_into, x, y)
        same(y.numpy(), [A + A, A + B])
        same(world.run(R.added, x, y).numpy(), [3 * A, A + 2 * B])


# ---- programs that are only checked --------------------------------------------------------------


def test_a_checked_program(tmp_path):
    """`nki-dist check` of a program that puts, launches, reads and frees."""
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nimport nki_dist as nki\n"
        "from tests.launcher import resident_kernels as R\n"
        "a = np.ones((4, 6), np.float32)\n"
        "with nki.World(ranks=2) as world:\n"
        "    x, y = world.put(a, name='x'), world.put(nki.per_rank([a, a]))\n"
        "    z = world.run(R.added, x, y)\n"
        "    world.run(R.add_into, z, y)\n"
        "    x.write_from_numpy(a)\n"
        "    assert z.numpy()[1].shape == (4, 6)\n"
        "    world.wait()\n"
        "    x.free()\n"
        "t = nki.DeviceTensor.from_numpy(a)\n"
        "assert R.added(t, t).numpy().shape == (4, 6)\n"
        "R.added(t, a[:, :3])\n"
    )
    done = python("-m", "nki_dist", "check", "--json", program)
    report = json.loads(done.stdout)
    assert report["exception"] is None, report["exception"]
    wrong = [d for k in report["kernels"] for d in k["diagnostics"] if d["severity"] == "error"]
    assert [d["line"] for d in wrong] and "(4, 3)" in wrong[0]["message"], report
    assert [k["name"] for k in report["kernels"]].count("add_into") == 1


# ---- forks ---------------------------------------------------------------------------------------


def test_a_fork_knows_that_its_tensors_are_lost(pair):
    x, again = pair.put(A, name="x"), pair.put(B, restore=True)
    pair.run(R.added, x, again).numpy()
    if not (child := os.fork()):
        code = 1
        try:
            wanted = errors.LaunchError if pair.host_name == "ray" else errors.CoreLostError
            with pytest.raises(wanted):
                x.numpy()
            if pair.host_name != "ray":
                same(again.numpy()[0], B)
                same(pair.run(R.added, pair.put(A), again).numpy()[0], A + B)
            x.free()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    same(pair.run(R.added, x, again).numpy()[0], A + B)
