"""Memory of a debugged launch: used again when Python has dropped a tile, and not before."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.runtime.stepping.lives import COUNTED
from nki_dist.runtime.stepping.memory import SLAB, Arena


@pytest.mark.skipif(not COUNTED, reason="this Python doesn't count references exactly")
def test_dropped_tiles_leave_their_memory_to_others(monkeypatch):
    taken, take = set(), Arena.take

    def counted(self, size):
        piece = take(self, size)
        taken.add(piece.ctypes.data)
        return piece

    monkeypatch.setattr(Arena, "take", counted)

    def kernel(x, keep):
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
    assert len(taken) == 40
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


def test_a_launch_takes_no_more_than_there_is():
    arena = Arena(3 * SLAB)
    for _ in range(3):
        arena.take(SLAB)
    with pytest.raises(errors.OutOfMemoryError, match="debugged launch needs") as caught:
        arena.take(64)
    assert caught.value.code == "host-memory"


def test_what_no_stack_holds_is_refused_before_it_is_made():
    def kernel(x):
        return nl.ndarray((1 << 20, 1 << 15), dtype=nl.float32, buffer=nl.shared_hbm)

    for host in (nki.simulate, nki.debug):
        with pytest.raises(errors.OutOfMemoryError, match="the HBM stack has") as caught:
            host(kernel)(np.zeros((2, 3), np.float32))
        assert caught.value.code == "hbm-full"
