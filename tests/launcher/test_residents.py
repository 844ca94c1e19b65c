"""HBM that is accounted for: how much there is, who has it, and that it goes back."""

import gc
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.core_actor.ray_host import RayHost
from nki_dist.hbm.freed import give_back
from tests.launcher import resident_kernels as R
from tests.launcher.resident_kernels import A, same

MIB = 1 << 20


@pytest.fixture(scope="module", params=["inprocess", "ray"])
def world(request):
    """For all tests: what one of them puts there goes with it."""
    with nki.World(ranks=2, lnc=1, host=request.param) as made:
        yield made


@pytest.fixture(params=["inprocess", "ray"])
def new_world(request):
    """One whose memory no other test has used."""
    with nki.World(ranks=2, lnc=1, host=request.param) as made:
        yield made


def names(world):
    gc.collect()
    return [t.name for t in world.residents()]


@pytest.mark.parametrize(
    ("platform", "lnc", "gib"), [("trn2", 1, 12), ("trn2", 2, 24), ("trn1", 1, 16)]
)
def test_capacity(platform, lnc, gib):
    assert nki.World(lnc=lnc, platform=platform, dry=True).hbm_capacity == gib << 30


def test_who_is_there(world):
    small, large = world.put(A, name="small"), world.put(np.ones((64, 64), np.float32), name="big")
    assert names(world) == ["big", "small"]
    y = world.run(R.added, small, small)
    world.wait()
    assert names(world) == ["big", "added.out", "small"]
    del y
    assert names(world) == ["big", "small"]
    small.free()
    assert names(world) == ["big"]
    del large
    assert names(world) == []


def test_what_is_full_says_so_before_anything_is_lost(world, monkeypatch):
    kept = [world.put(np.full((16, 64), n, np.float32), name=f"kept {n}") for n in range(8)]
    monkeypatch.setattr(world.residence, "capacity", 9 * 16 * 64 * 4)
    large = np.ones((32, 64), np.float32)
    with pytest.raises(errors.OutOfMemoryError) as caught:
        world.put(large, name="one more")
    said = str(caught.value)
    assert "tensor one more needs 8,192 bytes of the HBM of a rank, which has 36,864" in said
    assert "kept 0 (4,096 bytes)" in said and "and 3 more" in said
    assert caught.value.code == "hbm-full"
    for n, tensor in enumerate(kept):
        same(tensor.numpy(), [np.full((16, 64), n)] * 2)
    cache, x = kept[0], kept[1]
    with pytest.raises(errors.OutOfMemoryError, match="a launch of forms needs"):
        world.run(R.forms, x, cache)  # returns copies of parts, too
        world.wait()
    same(cache.numpy()[0], np.zeros((16, 64)))
    kept.pop().free()
    same(world.put(large).numpy()[1], large)


def test_arrays_of_a_launch_need_room_beside_tensors(world, monkeypatch):
    x = world.put(np.ones((64, 64), np.float32), name="x")
    monkeypatch.setattr(world.residence, "capacity", 3 * 64 * 64 * 4 - 1)
    array = np.ones((64, 64), np.float32)
    for launch in (lambda: world.run(R.added, x, array), lambda: world.run(R.added, array, array)):
        with pytest.raises(errors.OutOfMemoryError, match=r"a launch of added needs.*x \(16,384"):
            launch()
            world.wait()
    same(x.numpy()[1], array)


def test_places_are_used_again_and_tensors_do_not_meet(world):
    """Tensors of many sizes come and go; each keeps its own bytes."""
    rng = np.random.default_rng(3)
    there = {}
    for step in range(120):
        if len(there) > 12 or (there and rng.random() < 0.4):
            key = list(there)[rng.integers(len(there))]
            tensor, wanted = there.pop(key)
            same(tensor.numpy(), wanted)
            if rng.random() < 0.5:
                tensor.free()
            del tensor
        else:
            shape = tuple(rng.integers(1, 40, 2))
            wanted = [rng.standard_normal(shape, np.float32) for _ in range(2)]
            there[step] = world.put(nki.per_rank(wanted)), wanted
    for tensor, wanted in there.values():
        same(tensor.numpy(), wanted)
    held = sum(world.residence._regions.sizes.values())
    assert held < 8 * sum(t.nbytes for t, _ in there.values()) + MIB


def test_unwritten_elements_are_not_what_was_there_before(world):
    @nki.jit
    def half(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0:2], nl.load(x[0:2]))
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.UnwrittenOutputWarning)
        for _ in range(3):
            world.put(A + 5).free()
            y = world.run(half, world.put(A))
            same(y.numpy()[1][:2], A[:2])
            assert not np.isin(y.numpy()[1][2:], A + 5).any()
            del y


def store():
    """Bytes that the object store of this process's Ray has touched; others of the machine don't
    count. Its file has no name, and the raylet, a child of this process, has it open."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) != os.getpid() or b"raylet" not in (folder / "cmdline").read_bytes():
                continue
            for link in (folder / "fd").iterdir():
                if os.readlink(link).startswith("/dev/shm/plasma"):
                    status = os.stat(link)
                    found[status.st_ino] = status.st_blocks * 512
        except OSError:
            continue  # it has ended
    return sum(found.values())


def used():
    """Bytes of this process and of the object store, whose files have no names."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    page = os.sysconf("SC_PAGE_SIZE")
    return store() + (resident - shared) * page


def growth(act, times):
    act()
    gc.collect()
    give_back()  # what malloc keeps is of the tests before as well
    before, files, peak = used(), len(os.listdir("/proc/self/fd")), 0
    for _ in range(times):
        act()
        peak = max(peak, used() - before)
    gc.collect()
    give_back()
    return peak, used() - before, len(os.listdir("/proc/self/fd")) - files


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
@pytest.mark.parametrize("way", ["free", "drop", "launch", "larger"])
def test_put_and_free_need_no_more_memory_each_time(new_world, way):
    world = new_world
    sizes = iter(range(100))
    array = np.ones((2 * MIB,), np.float32)
    world.run(R.added, world.put(A), A)

    def act():
        if way == "larger":
            t = world.put(np.ones((MIB + MIB // 8 * next(sizes),), np.float32))
        else:
            t = world.put(array)
        if way == "launch":
            view = world.run(R.added, world.put(A), A)
            world.wait()
            del view
        if way == "free":
            t.free()

    peak, after, files = growth(act, 24)  # 384 MiB and more in two ranks, if all of it stayed
    left = 200 if isinstance(world.host, RayHost) else 130  # a store keeps pages that it touched
    assert peak < 200 * MIB and after < left * MIB and files <= 2, (peak, after, files)


def test_a_closed_world_gives_all_back():
    array = np.ones((2 * MIB,), np.float32)

    def act():
        with nki.World(ranks=2, host="inprocess") as world:
            kept = [world.put(array) for _ in range(3)]
        kept[0].free()

    peak, after, files = growth(act, 6)
    assert after < 40 * MIB and files <= 0, (peak, after, files)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")
@pytest.mark.slow
def test_memory_is_used_once_whatever_the_number_of_processes():
    """64 ranks in several processes, 16 MiB each."""
    with nki.World(ranks=64, lnc=1, host="ray", cores_per_actor=16) as world:
        x = world.put(A)
        world.run(R.added, x, x).numpy()
        nbytes = 16 * MIB
        processes = [os.getpid(), *(pid for pid, _ in world.host.processes)]

        def total():
            return store() + sum(map(private, processes))

        def put():
            return world.put(nki.per_rank(lambda rank: np.full((nbytes // 4,), rank, np.float32)))

        before = total()
        big = put()
        assert 0.5 < (total() - before) / (64 * nbytes) < 1.05  # some pages may be there already
        big.free()
        big = put()  # in the place of the other

        @nki.jit
        def first(x):
            t = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x[0:1].reshape((1, 1)))
            out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, t)
            return out

        got = world.run(first, big).numpy()
        assert [v[0, 0] for v in got] == list(range(64))
        assert total() - before < 1.05 * 64 * nbytes


def private(pid):
    """Bytes of a process that aren't of the object store's files."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous:"))
