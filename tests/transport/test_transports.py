"""Whole worlds on each transport: the same bits, the same errors, nothing left behind."""

import subprocess
import sys
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.collectives.choose import VARIABLE
from tests.collectives import kernels as K
from tests.collectives.test_hosts import everything
from tests.collectives.worlds import normal
from tests.hosts import kernels as H

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]

EVERY = ncc.ReplicaGroup([[1, 0, 2]])
WAYS = [
    {"host": "inprocess"},
    {"cores_per_actor": 3},  # direct, in an actor
    {"transport": "ring"},
    {"transport": "messages"},
]


def large(world):
    """Payloads that don't fit into records: read where they are, and sent on by others."""
    xs = normal(5, 3, (3, 40_000), np.float32)
    ys = normal(6, 3, (3, 60_000), ml_dtypes.bfloat16)
    outs = [
        world.run(K.all_reduce, nki.per_rank(xs), EVERY, nl.add),
        world.run(K.all_reduce, nki.per_rank(ys), EVERY, nl.add, in_place=True),
        world.run(K.all_gather, nki.per_rank(ys), EVERY, 3),
        world.run(K.all_to_all, nki.per_rank(xs), EVERY),
        world.run(K.reduce_scatter, nki.per_rank(xs), EVERY, nl.add, 3),
        world.run(K.ring, nki.per_rank(xs), EVERY, 3, 2),
    ]
    return [np.asarray(o).tobytes() for out in outs for o in out]


@pytest.mark.slow
def test_a_ring_carries_small_and_large_payloads():
    found = []
    for options in ({"host": "inprocess"}, {"transport": "ring"}):
        with nki.World(ranks=3, **options) as world:
            found += [large(world) for _ in range(2)]
    assert all(f == found[0] for f in found)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["", "ring", "mesh", "single_step_mesh"])
def test_the_same_bits_on_each_transport(algorithm, monkeypatch):
    monkeypatch.setenv(VARIABLE, algorithm)
    found = []
    for options in WAYS:
        with nki.World(ranks=3, **options) as world:
            found += [large(world) for _ in range(2)]
    assert all(f == found[0] for f in found)


@pytest.mark.slow
def test_twenty_runs_on_each_transport_give_the_same_bits():
    found = []
    for options in WAYS:
        with nki.World(ranks=4, **{**options, "lnc": 1}) as world:
            found += [everything(world) for _ in range(20)]
    assert all(f == found[0] for f in found)


@nki.jit
def many_small_ones(x, pairs, rounds):
    """Permutations one after the other, so that a sender runs far ahead of its receiver."""
    src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=src, src=x)
    dsts = [nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(rounds)]
    for dst in dsts:
        ncc.collective_permute([src], [dst], pairs)
    out = nl.ndarray((rounds, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(len(dsts)):
        dst = dsts[n]
        nisa.dma_copy(dst=out[n], src=dst)
    return out


def test_a_sender_never_waits():
    """Rank 0 sends megabytes before rank 1 looks, and is finished long before it."""
    xs = normal(7, 2, (5, 700), np.float32)  # 14 kB: in the records
    with nki.World(ranks=2, transport="ring") as world:
        outs = world.run(many_small_ones, nki.per_rank(xs), [(0, 1)], 60)
    np.testing.assert_array_equal(outs[1], np.broadcast_to(xs[0], (60, 5, 700)))


@pytest.mark.parametrize("transport", ["ring", "messages"])
def test_a_deadlock_is_certain_on_each_transport(transport):
    """Core 1 has finished, and what core 0 sent it was never taken."""
    with nki.World(lnc=2, transport=transport) as world:
        with pytest.raises(errors.DeadlockError, match=r"core 1 has finished its program"):
            world.run(H.core_zero_waits_for_tile, np.zeros((8, 4), np.float32))
        a, b = (np.random.default_rng(n).standard_normal((64, 7), np.float32) for n in (1, 2))
        np.testing.assert_array_equal(world.run(H.add_halves, a, b)[0], a + b)


@nki.jit
def reduce_for_ever(x, group, rounds):
    src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    dst = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=src, src=x)
    for _ in nl.dynamic_range(rounds):
        ncc.all_reduce([src], [dst], group, nl.add)
    return dst


@pytest.mark.slow
def test_a_process_that_dies_among_messages_is_replaced():
    import ray

    xs = [np.full((3, 20_000), 2.0**r, np.float32) for r in range(3)]
    with nki.World(ranks=3, transport="ring") as world:
        short = world.run(reduce_for_ever, nki.per_rank(xs), EVERY, 3)
        victim = world.host.actors[1]
        timer = threading.Timer(0.5, lambda: ray.kill(victim))
        timer.start()
        with pytest.raises(errors.CoreLostError):
            world.run(reduce_for_ever, nki.per_rank(xs), EVERY, 2**30)
        again = world.run(reduce_for_ever, nki.per_rank(xs), EVERY, 3)
    assert [o.tobytes() for o in short] == [o.tobytes() for o in again]
    np.testing.assert_array_equal(again[0], np.full((3, 20_000), 7, np.float32))


LEFTOVERS = """
import gc, sys
from pathlib import Path
import numpy as np
import nki_dist as nki
import nki_dist.collectives as ncc
from tests.transport.test_transports import reduce_for_ever

xs = [np.ones((64, 1 << 16), np.float32)] * 2  # 16 MiB
group = ncc.ReplicaGroup([[0, 1]])
before = set(Path("/dev/shm").iterdir())
def sockets():
    return Path("/proc/net/unix").read_text().count("/proc/self/fd/")
others = sockets()
shown = []
for _ in range(6):
    with nki.World(ranks=2, transport="ring") as world:
        first, second = world.run(reduce_for_ever, nki.per_rank(xs), group, 3)
        assert first[0, 0] == second[-1, -1] == 2
        shown.append(sockets() - others)
import time
import ray
for _ in range(100):  # ray.kill doesn't wait for the end of a process
    left = sockets() - others
    if not left:
        break
    time.sleep(0.1)
ray.shutdown()
print(min(shown) >= 2, left, len(set(Path("/dev/shm").iterdir()) - before))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/unix").exists(), reason="looks at Linux's tables")
def test_worlds_leave_no_memory_and_no_sockets():
    """Six worlds in a store with room for the stacks and payloads of two."""
    done = subprocess.run(
        [sys.executable, "-c", LEFTOVERS],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**_environment(), "NKI_DIST_OBJECT_STORE_BYTES": str(450 << 20)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["True", "0", "0"]


def _environment():
    import os

    return {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"} | {"RAY_ADDRESS": "local"}


def test_unknown_transport(monkeypatch):
    with pytest.raises(errors.LaunchError, match=r"transport='tcp'; allowed: auto, ring, messages"):
        nki.World(transport="tcp")
    monkeypatch.setenv("NKI_DIST_TRANSPORT", "udp")
    with pytest.raises(errors.LaunchError, match=r"NKI_DIST_TRANSPORT='udp'; allowed: auto, ring"):
        nki.World()
