"""Others of the machine: they reach no socket of ours, and nothing of ours goes to theirs."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import ray

import nki_dist as nki
from nki_dist.core_actor import world_actors
from nki_dist.core_actor.folder import Folder
from nki_dist.core_actor.mailbox import Mailbox
from tests.transport import attacked
from tests.transport.test_mailbox import X, calls, doubled, launched

ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")


@ROOT
def test_launches_go_on_while_somebody_floods_and_takes_names():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", attacked.__name__],
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == ["['0', '0', '0']", "right"]


@ROOT
def test_a_folder_of_somebody_else_is_not_entered(tmp_path):
    (tmp_path / "nki-theirs").mkdir(mode=0o700)
    os.chown(tmp_path / "nki-theirs", 65534, 65534)
    with pytest.raises(PermissionError, match=r"nki-theirs must belong to user 0 alone.*65534"):
        Folder.inside(str(tmp_path), "theirs")


def test_a_folder_that_others_can_enter_is_not_entered(tmp_path):
    for mode in (0o755, 0o711, 0o770, 0o707):
        (tmp_path / "nki-open").mkdir(exist_ok=True)
        (tmp_path / "nki-open").chmod(mode)
        with pytest.raises(PermissionError, match=f"mode {mode:o}"):
            Folder.inside(str(tmp_path), "open")


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "there").mkdir(mode=0o700)
    (tmp_path / "nki-link").symlink_to(tmp_path / "there")
    with pytest.raises(OSError, match="Not a directory"):
        Folder.inside(str(tmp_path), "link")


def test_another_folder_in_its_place_is_not_spoken_to(tmp_path):
    """As whoever may rename things beside the raylet's socket can put there."""
    ours = Folder.inside(str(tmp_path), "ours")
    here, there = Mailbox(ours, "here"), Mailbox(ours, "there")
    os.rename(tmp_path / "nki-ours", tmp_path / "away")
    theirs = Folder.inside(str(tmp_path), "ours")
    trap = Mailbox(theirs, "here")
    assert there.send("here", "a secret")
    assert here.receive(1) == "a secret" and trap.receive(0) is None
    for mailbox in (here, there, trap):
        mailbox.close()
    ours.close()
    theirs.close()


def test_the_last_one_removes_the_folder_and_the_next_one_what_killed_processes_left(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from nki_dist.core_actor.folder import Folder\n"
        "kept = Folder.inside(sys.argv[1], sys.argv[2]).bound('a socket')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path, "killed"], check=False)
    assert (tmp_path / "nki-killed/a socket").is_socket()
    used = Folder.inside(str(tmp_path), "used")
    assert not (tmp_path / "nki-killed").exists()
    again = Folder.inside(str(tmp_path), "used")
    other = Folder.inside(str(tmp_path), "other")
    used.close()
    assert (tmp_path / "nki-used").exists()
    again.close()
    other.close()
    assert not list(tmp_path.iterdir())


# ---- launches -----------------------------------------------------------------------------------


def test_word_that_does_not_arrive_is_given_another_way(monkeypatch):
    """As when the queue of a process is full: it is told by a call that nothing comes any more."""
    with nki.World(lnc=2, cores_per_actor=1, timeout=20) as world:
        launched(world)
        send = Mailbox.send
        with monkeypatch.context() as patched:
            patched.setattr(
                Mailbox, "send", lambda p, n, item: item is not None and send(p, n, item)
            )
            wide = np.tile(X, (1, 16))  # for larger stacks all are dismissed
            assert np.array_equal(world.run(doubled, wide, False)[0], 2 * wide)
        assert len(calls(world)._serving) == 2


def test_who_is_dismissed_before_it_serves_does_not_wait():
    with nki.World(lnc=2, cores_per_actor=1, timeout=20) as world:
        launched(world)
        known, orders = calls(world), []
        send = known._mailbox.send
        known._mailbox.send = lambda name, item: orders.append(item) or send(name, item)
        launched(world)
        known._mailbox.send = send
        ray.get([actor.dismiss.remote("later") for actor in known._actors])
        known.dismiss()
        future = known._actors[0].serve.remote(orders[0], 0, "later", "nobody")
        assert ray.get(future, timeout=20).launch == orders[0].launch
        known._futures.clear()
        launched(world)


def test_processes_that_share_no_folder_are_reached_by_calls(monkeypatch, tmp_path):
    """As in containers of their own, or started by another user."""

    def elsewhere():
        return {n["NodeID"]: str(tmp_path / "none") for n in world_actors.ray.nodes()}

    monkeypatch.setattr(world_actors, "socket_folders", elsewhere)
    with nki.World(lnc=2, cores_per_actor=1, timeout=60) as world:
        for _ in range(3):
            launched(world)
            assert not calls(world)._serving


def test_a_folder_that_is_closed_again_closes_nobody_s_file() -> None:
    folder = Folder.alone()
    folder.close(whole=True)
    file = os.open(os.devnull, os.O_RDONLY)
    try:
        folder.close(whole=True)
        os.fstat(file)
    finally:
        os.close(file)
