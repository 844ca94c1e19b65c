"""Memory of a debugged launch: used again when Python has dropped a tile, and not before."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.runtime.stepping.lives import COUNTED
from nki_dist.runtime.stepping.memory import SLAB, Arena


@pytest.fixture
def taken(monkeypatch):
    """Where tiles were."""
    taken, take = set(), Arena.take

    def counted(self, size):
        piece = take(self, size)
        taken.add(piece.ctypes.data)
        return piece

    monkeypatch.setattr(Arena, "take", counted)
    return taken


def test_rounds_leave_their_memory_to_the_next_whoever_has_their_tiles(taken):
    held = []

    def kernel(x):
        def body(n):
            tile = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.sbuf)
            nisa.memset(tile, 1.0)
            held.append(tile)

        nl.fori_loop(0, 9, body)
        return x

    nki.debug(kernel)(np.zeros((2, 3), np.float32))
    assert (len(held), len(taken)) == (9, 1)


@pytest.mark.skipif(not COUNTED, reason="this Python doesn't count references exactly")
def test_dropped_tiles_leave_their_memory_to_others(taken):
    def kernel(x, keep):
        for _ in range(2):
            tiles = []
            for n in range(40):
                tile = nl.ndarray((16, 24), dtype=nl.float32, buffer=nl.sbuf)
                nisa.memset(tile, float(n))
                if keep:
                    tiles.append(tile[:, 2:4])  # a view holds its tile
            for n in range(len(tiles)):
                view = tiles[n]
                assert (view.numpy() == n).all()
        return x

    x = np.zeros((2, 3), np.float32)
    nki.debug(kernel)(x, True)
    assert 40 <= len(taken) <= 43
    taken.clear()
    nki.debug(kernel)(x, False)
    assert len(taken) <= 3


def test_an_arena_gives_distinct_pieces_until_they_come_back():
    arena = Arena()
    pieces = [arena.take(64) for _ in range(5)] + [arena.take(SLAB)]
    for n, piece in enumerate(pieces):
        piece.fill(n)
    assert [set(piece) for piece in pieces[:5]] == [{n} for n in range(5)]
    arena.give(pieces[2])
    known = {piece.ctypes.data for piece in pieces}
    assert arena.take(64).ctypes.data == pieces[2].ctypes.data
    assert arena.take(64).ctypes.data not in known
    size = 3 * SLAB // 16  # which no slab is a multiple of
    assert [len(arena.take(size)) for _ in range(7)] == [size] * 7


def test_a_launch_takes_no_more_than_there_is():
    arena = Arena(3 * SLAB)
    for _ in range(3):
        arena.take(SLAB)
    with pytest.raises(errors.OutOfMemoryError, match="debugged launch needs") as caught:
        arena.take(64)
    assert caught.value.code == "host-memory"
    with pytest.raises(errors.OutOfMemoryError, match="no memory left"):
        Arena(1 << 60).take(1 << 55)  # more than a process can address


def test_what_no_stack_holds_is_refused_before_it_is_made():
    def kernel(x):
        return nl.ndarray((1 << 20, 1 << 15), dtype=nl.float32, buffer=nl.shared_hbm)

    for host in (nki.simulate, nki.debug):
        with pytest.raises(errors.OutOfMemoryError, match="the HBM stack has") as caught:
            host(kernel)(np.zeros((2, 3), np.float32))
        assert caught.value.code == "hbm-full"
