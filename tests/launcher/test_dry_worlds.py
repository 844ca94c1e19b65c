"""Worlds without values: shapes, capacity, synchronisation and time of a sequence of launches."""

import gc

import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist import errors
from tests.launcher import resident_kernels as R
from tests.launcher.in_a_row import summed
from tests.launcher.resident_kernels import A

SPEC = nki.TensorSpec((4, 6), nl.float32)


def test_shapes_of_results():
    with nki.World(ranks=2, dry=True) as world:
        x, y = world.put(SPEC, name="x"), world.put(A)
        got = world.run(R.forms, x, y)
        assert got["written"] is y and got["argument"] is x
        assert {k: got[k].shape for k in ("out", "part", "part of what is written")} == {
            "out": (4, 6),
            "part": (2, 3),
            "part of what is written": (2, 5),
        }
        assert isinstance(world.run(R.added, SPEC, x), nki.DeviceTensor)
        assert world.run(R.add_into, x, y) is None


def test_there_are_no_values():
    with nki.World(dry=True) as world:
        x = world.put(A, name="x")
        for use in (x.numpy, lambda: x.write_from_numpy(A)):
            with pytest.raises(errors.LaunchError, match="tensor x has a shape and no values"):
                use()
        x.free()
        with pytest.raises(errors.LaunchError, match="freed"):
            world.run(R.added, x, x)


def test_nothing_is_started(monkeypatch):
    from nki_dist.launcher import hosted

    monkeypatch.setattr(hosted, "ray_host", lambda: pytest.fail("a dry world starts no cores"))
    with nki.World(ranks=2, host="ray", dry=True) as world:
        world.run(R.added, world.put(A), world.put(SPEC))
        world.wait()


def test_capacity_is_that_of_the_platform():
    with nki.World(platform="trn2", dry=True) as world:
        assert world.hbm_capacity == 12 << 30
        third = nki.TensorSpec((4 << 20, 256), nl.float32)  # 4 GiB
        x, y = world.put(third, name="x"), world.put(third, name="y")
        with pytest.raises(errors.OutOfMemoryError, match=r"z needs.* \(4,294,967,296 bytes\)"):
            world.put(nki.TensorSpec((4 << 20, 257), nl.float32), name="z")
        del y
        gc.collect()
        y = world.put(third, name="y")
        assert sum(t.nbytes for t in world.residents()) == 8 << 30
        del x, y
        gc.collect()
        most = world.put(nki.TensorSpec(((12 << 30) - 192,), nl.uint8), name="most")
        x = world.put(SPEC)
        with pytest.raises(errors.OutOfMemoryError, match=r"a launch of added needs.*most \("):
            world.run(R.added, x, x)
        assert world.residents() == [most, x]


def test_synchronisation_is_checked():
    with nki.World(lnc=2, dry=True) as world:
        x = world.put(SPEC)
        with pytest.raises(errors.DeadlockError, match=r"core 0 waits in nisa\.core_barrier"):
            world.run(R.apart, x)
        assert world.run(R.added, x, x).shape == (4, 6)


def test_wrong_shapes_are_refused_as_elsewhere():
    with nki.World(dry=True) as world, nki.World(dry=True) as other:
        x = world.put(SPEC, name="x")
        with pytest.raises(errors.NkiValidationError):
            world.run(R.added, x, world.put(nki.TensorSpec((4, 5), nl.float32)))
        with pytest.raises(errors.LaunchError, match="tensor x is in another world"):
            other.run(R.added, x, x)


def test_time_is_that_of_a_launch_with_values():
    group = ncc.ReplicaGroup([[0, 1]])
    found = []
    for dry in (True, False):
        with nki.World(ranks=2, host="inprocess", dry=dry) as world:
            x = world.put(A)
            with world.session() as session:
                y = world.run(R.added, x, x)
                world.run(summed, y, group)
                world.run(R.add_into, x, y)
        found.append([(n.name, n.device_us) for n in session.launches])
    assert found[0] == found[1] and len(found[0]) == 3


@pytest.mark.slow
def test_as_many_ranks_as_there_may_be():
    ranks = 16384
    with nki.World(ranks=ranks, lnc=2, dry=True) as world:
        x = world.put(nki.TensorSpec((128, 64), nl.float32))
        group = ncc.ReplicaGroup([list(range(n, n + 64)) for n in range(0, ranks, 64)])
        with world.session() as session:
            y = world.run(R.added, world.run(summed, x, group), x)
        assert y.shape == (128, 64) and session.device_us > 0
