"""A barrier on another tensor than the one that is handed over: a race."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import RaceError

X = np.arange(6 * 10, dtype=np.float32).reshape(6, 10)


@nki.jit
def swapped(x, on="meeting", loop=False):
    """Each core stores a row and reads the other's."""
    core = nl.program_id(0)
    meeting = nl.ndarray((2, 10), dtype=x.dtype, buffer=nl.shared_hbm)
    other = nl.ndarray((2, 10), dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((2, 10), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(meeting[core : core + 1], nl.load(x[core : core + 1]))
    nl.store(other[core : core + 1], nl.load(x[core + 2 : core + 3]))
    if on == "sbuf":
        nisa.core_barrier(nl.load(x), (0, 1))
    elif on == "sendrecv":
        tile, got = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.sendrecv(src=tile, dst=got, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    else:
        if on in ("other", "both"):
            nisa.core_barrier(other, (0, 1))
        if on in ("meeting", "both"):
            nisa.core_barrier(meeting, (0, 1))
    nl.store(out[core : core + 1], nl.load(meeting[1 - core : 2 - core]))
    return out


def ran(kernel, *arguments, check="default", host="inprocess", **options):
    with nki.World(ranks=1, lnc=2, host=host, check=check) as world:
        return world.run(kernel, *arguments, **options)[0]


@pytest.mark.parametrize("host", ["inprocess", "debug"])
def test_only_a_barrier_on_that_tensor_orders(host):
    with pytest.raises(RaceError) as found:
        ran(swapped, X, host=host, on="other")
    assert "nothing orders a load by core" in found.value.message
    assert "put nisa.core_barrier(meeting, (0, 1)) between" in found.value.hint
    assert "a barrier orders accesses to its `data` only" in found.value.hint
    for on in ("meeting", "both", "sbuf", "sendrecv"):
        np.testing.assert_array_equal(ran(swapped, X, host=host, on=on), X[1::-1], on)


def test_a_file_keeps_what_its_barriers_order(tmp_path):
    with nki.World(ranks=1, lnc=2, host="inprocess", check="default") as world:
        world.compile(swapped, X, on="other").save(tmp_path / "k.nki-dist")
    with pytest.raises(RaceError, match=r"core_barrier|load by core"):
        ran(Compiled.load(tmp_path / "k.nki-dist"), X)


@nki.jit
def in_a_loop(x, wrong=False):
    """In each round the cores hand a row over, twice; both barriers are needed."""
    core = nl.program_id(0)
    meeting = nl.ndarray((2, 10), dtype=x.dtype, buffer=nl.shared_hbm)
    other = nl.ndarray((2, 10), dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray((2, 10), dtype=x.dtype, buffer=nl.shared_hbm)
    for _ in nl.dynamic_range(2):
        nl.store(meeting[core : core + 1], nl.load(x[core : core + 1]))
        nisa.core_barrier(other if wrong else meeting, (0, 1))
        nl.store(out[core : core + 1], nl.load(meeting[1 - core : 2 - core]))
        nisa.core_barrier(meeting, (0, 1))
    return out


def test_loops():
    check = "release=0.6"
    np.testing.assert_array_equal(ran(in_a_loop, X, check=check), X[1::-1])
    with pytest.raises(RaceError, match="load by core"):
        ran(in_a_loop, X, check=check, wrong=True)
