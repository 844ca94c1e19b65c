"""Shared memory or Ray's disk is full: nothing dies without a word, and later it works again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nki_dist.core_actor import ray_session
from nki_dist.errors import LaunchError
from nki_dist.hbm.pages import BLOCK, SLACK, Pages, pages_of


def test_enough_is_what_could_need_new_pages() -> None:
    assert Pages("/d", 10 * SLACK, 100 * SLACK).enough(9 * SLACK)
    assert not Pages("/d", 10 * SLACK, 100 * SLACK).enough(9 * SLACK + 1)
    assert Pages("/d", 10 * SLACK, 10 * SLACK).enough(1000 * SLACK)  # the store has nearly all
    assert Pages("/d", 0, 0).enough(5)


class Processes:
    """What /proc shows of a raylet whose store is a file of our own."""

    def __init__(self, folder: Path, socket: str, size: int) -> None:
        self.store = folder / "shm" / "plasmaXYZ"
        self.store.parent.mkdir()
        with open(self.store, "wb") as file:
            file.truncate(size)
        self.root = folder / "proc"
        raylet, other = self.root / "17" / "fd", self.root / "9" / "fd"
        for process in (raylet, other):
            process.mkdir(parents=True)
        (self.root / "version").write_text("not a process")
        (raylet / "0").symlink_to("/dev/null")
        (raylet / "5").symlink_to(self.store)
        arguments = ["raylet", f"--store_socket_name={socket}", "--object_store_memory=1",
                     f"--plasma_directory={self.store.parent}"]  # fmt: skip
        (raylet.parent / "cmdline").write_bytes("\0".join([*arguments, ""]).encode())
        other.parent.joinpath("cmdline").write_bytes(f"python\0{socket}\0".encode())


def test_pages_are_those_of_the_stores_file(tmp_path) -> None:
    processes = Processes(tmp_path, "/s/plasma_store", 1 << 20)
    found = pages_of("/s/plasma_store", str(processes.root))
    assert found is not None
    assert (found.directory, found.untouched) == (str(processes.store.parent), 1 << 20)
    with open(processes.store, "r+b") as file:
        file.write(b"\1" * 300_000)
        file.flush()
        os.fsync(file.fileno())
        written = os.stat(processes.store).st_blocks * BLOCK
    found = pages_of("/s/plasma_store", str(processes.root))
    assert found is not None
    assert found.untouched == (1 << 20) - written <= (1 << 20) - 300_000
    assert found.free > 0


def test_what_cannot_be_seen_refuses_nothing(tmp_path) -> None:
    processes = Processes(tmp_path, "/s/plasma_store", 1 << 20)
    assert pages_of("/another/plasma_store", str(processes.root)) is None
    assert pages_of("/s/plasma_store", str(tmp_path / "nothing")) is None
    (processes.root / "17" / "fd" / "5").unlink()
    assert pages_of("/s/plasma_store", str(processes.root)) is None


def test_a_full_disk_is_refused_before_ray_waits(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv(ray_session.FOLDER_VARIABLE, str(tmp_path))
    ray_session.require_disk()
    full = ray_session.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(ray_session.shutil, "disk_usage", lambda folder: full)
    with pytest.raises(
        LaunchError, match=rf"{tmp_path}, where .* has 1,000 bytes left; .*RAY_TMPD"
    ):
        ray_session.require_disk()


def in_a_namespace(what: str, folder: Path) -> dict[str, Any]:
    mounts = (
        "mount -t tmpfs -o size=300m tmpfs /dev/shm && "
        f"mount -t tmpfs -o size=200m tmpfs {folder} && "
    )
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts + "true"], check=False).returncode:
        pytest.skip("needs the right to mount file systems")
    program = f"exec {sys.executable} -m tests.launcher.full_places {what} {folder}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounts + program],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture
def short(tmp_path_factory) -> Any:
    """A folder for sockets, whose paths may have 107 characters only."""
    folder = Path("/tmp") / f"nki-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()


@pytest.mark.slow
def test_shared_memory_is_full(short) -> None:
    found = in_a_namespace("shm", short)
    error, seconds = found.pop("grows")
    assert error.startswith("OutOfMemoryError: shared_hbm needs 104857664 bytes, but /dev/shm, ")
    assert "has 16777216 bytes left for all programs" in error
    assert seconds < 8
    said, seconds = found.pop("messages grow")
    assert said == "ok"
    assert seconds < 30
    assert found == {
        "warm": ["ok", "ok"],
        "fits": "ok",
        "again": ["ok", "ok"],
        "while it runs": ["ok", 0],
        "at last": "ok",
    }


NEEDS_SHARED_MEMORY = """
import time
import numpy as np
import nki_dist as nki
from tests.launcher import kernels as K
begun, said = time.monotonic(), "nothing"
try:
    with nki.World(ranks=1, host="ray") as world:
        world.run(K.add_weights, np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32))
except nki.errors.LaunchError as error:
    said = str(error)
print(time.monotonic() - begun, said)
"""


@pytest.mark.slow
def test_shared_memory_that_is_read_only_is_named_at_once() -> None:
    mounts = "mount -t tmpfs -o ro tmpfs /dev/shm && "
    if subprocess.run(["unshare", "-m", "sh", "-c", mounts + "true"], check=False).returncode:
        pytest.skip("needs the right to mount file systems")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounts + f'exec {sys.executable} -c "$0"',
         NEEDS_SHARED_MEMORY],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    seconds, _, said = done.stdout.partition(" ")
    assert "/dev/shm, where it keeps shared_hbm, can't be written: Read-only" in said, done.stderr
    assert float(seconds) < 8


@pytest.mark.slow
def test_rays_disk_is_full(short) -> None:
    found = in_a_namespace("disk", short)
    error, seconds = found.pop("no start")
    assert error.startswith("LaunchError: Ray can't start on this machine: ")
    assert "bytes left" in error
    assert seconds < 8
    error, seconds = found.pop("spills")
    assert error.startswith("OutOfMemoryError")
    assert seconds < 8
    assert found == {
        "start": "ok",
        "warm": "ok",
        "while it runs": ["ok", 0],
        "when full": "ok",
        "at last": ["ok", "ok"],
    }
