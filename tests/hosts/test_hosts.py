"""Both hosts run the same kernels to the same bits, and cores share exactly what they should."""

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import errors
from tests.hosts import kernels as K

HOSTS = ("inprocess", "ray")


@pytest.fixture(scope="module", params=HOSTS)
def world(request):
    with nki.World(ranks=1, lnc=2, host=request.param) as made:
        yield made


def ints(rng, *shape):
    return rng.integers(-9, 9, shape).astype(np.float32)


def test_launch(world):
    rng = np.random.default_rng(3)
    a, b = ints(rng, 96, 33), ints(rng, 96, 33)
    for _ in range(3):
        np.testing.assert_array_equal(world.run(K.add_halves, a, b)[0], a + b)


def test_implicit_world_stays_warm():
    rng = np.random.default_rng(4)
    a, b = ints(rng, 64, 7), ints(rng, 64, 7)
    np.testing.assert_array_equal(K.add_halves[2](a, b), a + b)
    before = K.add_halves[2]._world().host.processes
    np.testing.assert_array_equal(K.add_halves[2](a + 1, b), a + b + 1)
    assert K.add_halves[2]._world().host.processes == before


def test_cores_share_shared_hbm_only(world):
    shared, private = world.run(K.who_sees_what, np.zeros((1, 1), np.float32))[0]
    both = np.array([[1.0] * 4, [2.0] * 4], np.float32)
    np.testing.assert_array_equal(shared, [both, both])
    own = np.array([[[1.0] * 4, [0.0] * 4], [[0.0] * 4, [2.0] * 4]], np.float32)
    np.testing.assert_array_equal(private, own)


@pytest.mark.parametrize("world", ["ray"], indirect=True)
def test_cores_are_different_processes(world):
    import os

    world.run(K.who_sees_what, np.zeros((1, 1), np.float32))
    pids = {pid for pid, _ in world.host.processes}
    assert len(pids) == 2
    assert os.getpid() not in pids


def test_sendrecv_pipes(world):
    x = ints(np.random.default_rng(5), 2, 16, 12)
    out = world.run(K.swap, x)[0]
    for me in (0, 1):
        theirs = x[1 - me]
        np.testing.assert_array_equal(out[me], [theirs, 2 * theirs, theirs])


@pytest.mark.parametrize("host", HOSTS)
def test_written_input_is_updated_in_place(host):
    rng = np.random.default_rng(6)
    x, y = ints(rng, 8, 5), ints(rng, 8, 5)
    want = x + y
    with nki.World(lnc=1, host=host) as world:
        assert world.run(K.add_in_place, x, y) == [None]
    np.testing.assert_array_equal(x, want)


def test_read_only_input_is_not_touched(world):
    rng = np.random.default_rng(7)
    a, b = ints(rng, 64, 7), ints(rng, 64, 7)
    a.flags.writeable = False
    np.testing.assert_array_equal(world.run(K.add_halves, a, b)[0], a + b)


def test_ranks_run_the_same_program_on_their_own_data():
    rng = np.random.default_rng(8)
    xs, y = [ints(rng, 32, 6) for _ in range(3)], ints(rng, 32, 6)
    for host in HOSTS:
        with nki.World(ranks=3, lnc=1, host=host) as world:
            outs = world.run(K.add_halves, nki.per_rank(xs), y)
        for x, out in zip(xs, outs):
            np.testing.assert_array_equal(out, x + y)


def test_packed_actors_give_the_same_bits():
    rng = np.random.default_rng(9)
    xs = [ints(rng, 2, 16, 12) for _ in range(2)]
    outs = {}
    for size in (1, 2, 4):
        with nki.World(ranks=2, lnc=2, cores_per_actor=size) as world:
            assert len(world.host.processes) == 4 // size
            outs[size] = [o.tobytes() for o in world.run(K.swap, nki.per_rank(xs))]
    assert outs[1] == outs[2] == outs[4]


def test_the_world_works_after_a_failure(world):
    with pytest.raises(errors.DeadlockError):
        world.run(K.core_zero_waits_for_tile, np.zeros((8, 4), np.float32))
    rng = np.random.default_rng(10)
    a, b = ints(rng, 64, 7), ints(rng, 64, 7)
    np.testing.assert_array_equal(world.run(K.add_halves, a, b)[0], a + b)


def test_rows_beyond_a_tensor_are_skipped_one_by_one(world):
    x, rows = ints(np.random.default_rng(11), 9, 7), np.array([[0], [8], [9]], np.int32)
    for start in (-2, 0, 5, 8):
        window = np.full((6, 5), -1, x.dtype)
        for k in range(6):
            if 0 <= start + k < 9:
                window[k] = x[start + k, 1:6]
        each = np.full((3, 2, 5), -1, x.dtype)
        each[0], each[1, 0] = x[0:2, 1:6], x[8, 1:6]
        got = world.run(K.rows_beyond, x, np.array([[start]], np.int32), rows)
        for one in got:
            for found, want in zip(one, (window, window, each), strict=True):
                np.testing.assert_array_equal(found, want)


def test_device_print_reaches_the_driver(world, capsys, tmp_path, monkeypatch):
    """On stdout with the core's number; saved per logical core, none over another."""
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for n in range(3):
        world.run(K.show, x + n)
    text = capsys.readouterr().out
    assert text.count("[core 0] tile") == text.count("[core 1] tile") == 3
    files = {str(f.relative_to(tmp_path)): np.load(f) for f in tmp_path.rglob("*.npy")}
    assert len(files) == 6
    for n in range(3):
        for core, name in enumerate(("tensor.npy", "tensor_lnc1.npy")):
            saved = files[f"tile/core_0/{n}/{name}"]
            np.testing.assert_array_equal(saved, (x + n) * (core + 1))


def test_killed_actor_is_reported_and_replaced():
    import ray

    limit = np.array([[2**30]], np.int32)
    with nki.World(ranks=1, lnc=2, host="ray") as world:
        actor = world.host.actors[1]
        world.run(K.count_forever, np.array([[3]], np.int32))  # warm

        import threading

        timer = threading.Timer(0.5, lambda: ray.kill(actor))
        timer.start()
        with pytest.raises(errors.CoreLostError) as caught:
            world.run(K.count_forever, limit)
        assert caught.value.core == 1
        out = world.run(K.count_forever, np.array([[3]], np.int32))[0]
        np.testing.assert_array_equal(out, [[0]])
