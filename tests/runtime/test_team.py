"""Threads of lanes: they end with whom they work for, and each has one BLAS thread."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist.linking import blas, lanes
from nki_dist.runtime.team import Team


def lane_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("nki lane")}


def end(threads: set[threading.Thread]) -> bool:
    """Whether they end, which takes a moment."""
    deadline = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return not any(thread.is_alive() for thread in threads)


@nki.jit
def two(x):
    """Two things that have nothing to do with each other."""
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(2):
        nl.store(out[n], nl.exp(nl.load(x)))
    return out


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_threads_end_with_their_world(how, monkeypatch):
    monkeypatch.setattr(lanes, "LEAST", 0.0)
    monkeypatch.setattr(lanes, "GAIN", 10.0)
    before = lane_threads()
    world = nki.World(ranks=1, host="inprocess", lnc=1, threads=3)
    x = np.linspace(0, 1, 128 * 64, dtype=np.float32).reshape(128, 64)
    (out,) = world.run(two, x)
    assert out[0].tobytes() == out[1].tobytes()
    threads = lane_threads() - before
    assert len(threads) == 2
    if how == "closed":
        world.close()
    del world
    assert end(threads)


def test_libraries_with_a_limit_for_each_thread_are_limited_in_each(monkeypatch):
    """OpenBLAS on OpenMP has one: what the launching thread says doesn't count in others."""
    limited: list[int] = []

    class Limit:
        def here(self) -> None:
            limited.append(threading.get_ident())

    monkeypatch.setattr(blas, "limit", Limit)
    team, worked = Team(), []
    together = threading.Barrier(3)

    def work() -> None:
        together.wait(60)  # so that each is another thread's
        worked.append(threading.get_ident())

    for _ in range(2):
        team.run([work] * 3, lambda: None)
    assert set(limited) == set(worked) - {threading.get_ident()}
    assert len(limited) == 2  # once for each
    team.close()
