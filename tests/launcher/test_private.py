"""A Ray that is started here is entered by nobody else, and listens to no other machine."""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
from nki_dist.core_actor.nodes import socket_folders
from nki_dist.core_actor.private import in_private
from nki_dist.core_actor.processes import by_parent
from tests.hosts.kernels import add_halves

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def listeners(pids):
    """(process, address) of what these processes listen at."""
    inodes = {}
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                if found := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(file)):
                    inodes[found[1]] = pid
    for family, table in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                words = bytes.fromhex(fields[1].split(":")[0])
                packed = struct.pack(
                    f"{len(words) // 4}I", *struct.unpack(f">{len(words) // 4}I", words)
                )
                yield inodes[fields[9]], socket.inet_ntop(family, packed)


@LINUX
def test_nothing_listens_to_other_machines():
    x = np.ones((8, 8), np.float32)
    with nki.World(lnc=2, cores_per_actor=1, host="ray") as world:
        world.run(add_halves, x, x)
        children, pids = by_parent(), [os.getpid()]
        for pid in pids:  # which grows
            pids += [child.pid for child in children.get(pid, ())]
        found = list(listeners(pids))
        assert len({pid for pid, _ in found}) > 4  # gcs_server, raylet, actors, this one
        assert {address for _, address in found} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}


STRANGER = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
os.rename(sys.argv[1], sys.argv[1] + "-ours")
"""


@LINUX
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be somebody else")
def test_nobody_else_puts_sockets_in_the_place_of_rays():
    (sockets,) = set(socket_folders().values())
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, sockets], stderr=subprocess.PIPE, text=True, check=False
    )
    assert "PermissionError" in done.stderr and os.path.isdir(sockets)


@pytest.fixture
def base(monkeypatch, tmp_path_factory):
    made = Path("/tmp") / f"nki_test-{os.getpid()}"
    made.mkdir(mode=0o755)
    monkeypatch.setenv("RAY_TMPDIR", str(made))
    yield made
    subprocess.run(["rm", "-r", str(made)], check=True)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_below_the_one_that_was_asked_for(base):
    for _ in range(2):
        assert in_private() == {"_temp_dir": f"{base}/nki_dist-{os.getuid()}/ray"}
    assert mode(base / f"nki_dist-{os.getuid()}") == 0o700


def test_one_that_nobody_else_can_enter_is_left_as_it_is(base):
    base.chmod(0o700)
    assert in_private() == {} and not list(base.iterdir())


def test_a_name_that_is_taken_is_not_used(base):
    (base / "elsewhere").mkdir(mode=0o700)
    (base / f"nki_dist-{os.getuid()}").symlink_to(base / "elsewhere")
    found = Path(in_private()["_temp_dir"]).parent
    assert found.parent == base and mode(found) == 0o700
    assert found.name not in ("elsewhere", f"nki_dist-{os.getuid()}")


def test_where_paths_would_be_too_long_it_is_as_ray_has_it(base, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(base / ("x" * 30)))
    assert in_private() == {}
