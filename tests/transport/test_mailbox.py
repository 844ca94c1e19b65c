"""Orders and answers by mailbox: what goes that way, what doesn't, and who may send."""

import os
import signal
import time
import uuid

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.core_actor.calls import Calls
from nki_dist.core_actor.mailbox import LARGEST, Mailbox
from nki_dist.core_actor.orders import Answer
from nki_dist.errors import CoreLostError


@pytest.fixture
def ends(folder):
    made = [Mailbox(folder, uuid.uuid4().hex) for _ in range(2)]
    yield made
    for mailbox in made:
        mailbox.close()


def test_pieces_come_whole_and_in_order(ends):
    here, there = ends
    for n in range(5):
        assert there.send(here.name, (n, b"x" * n * 1000))
    assert [here.receive(1) for _ in range(5)] == [(n, b"x" * n * 1000) for n in range(5)]
    assert here.receive(0) is None and here.receive(0.01) is None


def test_what_cannot_go_is_not_sent(ends):
    here, there = ends
    assert not there.send(here.name, b"x" * LARGEST)
    assert not there.send(here.name, lambda: None)
    here.close()
    assert not there.send(here.name, 1)


def test_a_sender_never_waits(ends):
    here, there = ends
    began = time.monotonic()
    sent = 0
    while there.send(here.name, b"x" * 10_000):
        sent += 1
        assert sent < 100_000
    assert time.monotonic() - began < 5
    assert all(here.receive(1) for _ in range(sent)) and here.receive(0) is None


def test_who_is_asked_again_while_answers_are_read_is_heard(ends):
    """As one is that doesn't know the program any more; stale answers aren't anybody's."""
    here, there = ends
    calls = Calls([None, None])
    calls._mailbox = here
    calls._serving.update({0: "first", 1: "second"})
    sent = [(0, Answer(4)), (1, Answer(5, unknown_program=True)), (1, Answer(5)), (0, Answer(5))]
    for answer in sent:
        assert there.send(here.name, answer)
    heard = list(calls.answers([0, 1], 5, 1.0))
    assert [(n, a.unknown_program) for n, a in heard] == [(1, True), (1, False), (0, False)]


# ---- launches -----------------------------------------------------------------------------------


@nki.jit
def doubled(x, show):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs(0)
    mine = nl.ds(nl.program_id(0) * rows, rows)
    tile = nl.load(x[mine])
    if show:
        nl.device_print("tile", tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nl.store(out[mine], tile)
    return out


X = np.arange(128 * 256, dtype=np.float32).reshape(128, 256)


@pytest.fixture(scope="module")
def world():
    with nki.World(lnc=2, cores_per_actor=1) as made:
        yield made


def calls(world):
    return world._host._actors.calls


def launched(world, show=False):
    (got,) = np.unique(world.run(doubled, X, show)[0] - 2 * X)
    assert got == 0


def test_processes_of_this_machine_serve_by_post(world):
    launched(world)
    serving = dict(calls(world)._serving)
    assert sorted(serving) == [0, 1]
    for _ in range(3):
        launched(world)
    assert calls(world)._serving == serving  # the same calls are still open


def test_answers_that_are_too_large_go_by_ray(world, capsys, monkeypatch):
    launched(world)
    began = time.monotonic()
    with monkeypatch.context() as patched:  # the mailbox alone would be waited for that long
        patched.setattr("nki_dist.core_actor.supervise.LOOK_EVERY", 60.0)
        launched(world, show=True)  # 64 KiB by each core
    assert time.monotonic() - began < 30
    assert not calls(world)._serving
    assert "tile" in capsys.readouterr().out
    launched(world)
    assert len(calls(world)._serving) == 2


def test_larger_stacks_are_mapped_by_those_that_serve(world):
    launched(world)
    wide = np.tile(X, (1, 16))
    (got,) = np.unique(world.run(doubled, wide, False)[0] - 2 * wide)
    assert got == 0


def test_one_that_serves_is_missed_when_it_is_killed(world):
    launched(world)
    pid = world._host.processes[0][0]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(CoreLostError):
        for _ in range(100):
            launched(world)
    launched(world)
    assert world._host.processes[0][0] != pid


def test_without_post_the_same(monkeypatch):
    def refused(*_):
        raise OSError

    monkeypatch.setattr("nki_dist.core_actor.calls.Mailbox", refused)
    with nki.World(lnc=2, cores_per_actor=1) as world:
        for _ in range(2):
            launched(world)
        assert not calls(world)._serving
