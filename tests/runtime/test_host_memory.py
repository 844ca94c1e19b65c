"""Host memory: what a launch needs is added up first, and what is missing later has a type."""

from __future__ import annotations

import resource

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes.scratch import Scratch
from nki_dist.errors import LaunchError, OutOfMemoryError
from nki_dist.isa.kit import Workspace
from nki_dist.runtime import host_memory
from tests.compiler.compiling import line_of

X = np.ones((128, 512), np.float32)  # 256 KiB


def doubled(x):
    """Two tiles of 256 KiB after each other, two of 128 KiB at once, and a result."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for columns in (slice(0, 256), slice(256, 512)):
        tile = nl.load(x[:, columns])
        twice = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=twice, data1=tile, data2=tile, op=nl.add)  # ADDED
        nl.store(out[:, columns], twice)
    return out


KIB = 1024
NEED = 2 * 256 * KIB + 2 * 128 * KIB + 256 * KIB  # argument and result, tiles, what is returned


def test_a_launch_fits_to_the_byte():
    with nki.World(host="inprocess", platform="trn2", memory=NEED) as world:
        np.testing.assert_array_equal(world.run(doubled, X)[0], 2 * X)
    message = (
        rf"a launch of doubled on 1 rank\(s\) needs {NEED} bytes of host memory: {512 * KIB} for "
        rf"arguments.*, {256 * KIB} for tiles.*, {256 * KIB} for results; World\(memory=\) allows "
        rf"{NEED - 1}"
    )
    with (
        nki.World(host="inprocess", platform="trn2", memory=NEED - 1) as world,
        pytest.raises(OutOfMemoryError, match=message),
    ):
        world.run(doubled, X)


def test_ranks_add_up_but_for_what_they_share():
    """The argument is one array for all ranks, and cores that never wait use the same tiles."""
    need = 3 * 512 * KIB + 2 * 128 * KIB + 256 * KIB
    with nki.World(3, host="inprocess", platform="trn2", memory=need - 1) as world:
        with pytest.raises(OutOfMemoryError, match=f"on 3 rank.* needs {need} bytes"):
            world.run(doubled, X)
        small = X[:, :8]  # the world works on

        def copy(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out, nl.load(x))
            return out

        np.testing.assert_array_equal(world.run(copy, small)[2], small)


def test_tensors_that_stay_are_refused_beside_those_that_are_there():
    message = rf"need {1024 * KIB} bytes of host memory beside {1024 * KIB} that others"
    with nki.World(2, host="inprocess", platform="trn2", memory=1024 * KIB) as world:
        kept = [world.put(X), world.put(X)]
        with pytest.raises(OutOfMemoryError, match=message) as caught:
            world.put(X)
        assert (kept[1].numpy()[1] == X).all()
    assert caught.value.numbers == {"got": 2048 * KIB, "most": 1024 * KIB}


def test_without_a_number_the_machine_is_the_limit(monkeypatch):
    monkeypatch.setattr(host_memory, "machine_bytes", lambda: NEED - 1)
    with (
        nki.World(host="inprocess", platform="trn2") as world,
        pytest.raises(OutOfMemoryError, match=f"this machine has {NEED - 1}"),
    ):
        world.run(doubled, X)


def test_the_machine_is_what_system_group_and_process_allow(monkeypatch, tmp_path):
    monkeypatch.setattr(host_memory, "CGROUP", str(tmp_path / "none"))
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, 0))
    whole = host_memory.machine_bytes()
    assert whole > 1 << 28
    group = tmp_path / "memory.max"
    monkeypatch.setattr(host_memory, "CGROUP", str(group))
    group.write_text("max\n")
    assert host_memory.machine_bytes() == whole
    group.write_text("12345\n")
    assert host_memory.machine_bytes() == 12345
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1234, 0))
    assert host_memory.machine_bytes() == 1234


@pytest.mark.parametrize(
    "options", [{"memory": 0}, {"memory": "1 GiB"}, {"memory": 1 << 20, "host": "ray"}]
)
def test_other_limits_are_refused(options):
    with pytest.raises(LaunchError, match="must be a positive number of bytes"):
        nki.World(**{"host": "inprocess", **options})


def missing(*_):
    raise MemoryError("Unable to allocate 3.00 GiB")


def converted(x):
    """Needs scratch space: bfloat16 is added in float32."""
    tile = nl.load(x)
    twice = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=twice, data1=tile, data2=tile, op=nl.add)  # ADDED
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, twice)
    return out


def multiplied(x, w):
    """Gathers operands of several matmuls before they are multiplied."""
    out = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    psum = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.psum)
    for _ in range(3):
        nisa.nc_matmul(dst=psum, stationary=nl.load(w), moving=nl.load(x))  # ADDED
    tile = nl.ndarray((64, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=psum)
    nl.store(out, tile)
    return out


SMALL = X[:, :8]
MISSING = {  # what asks for memory, and the instruction, if it is known by then
    "bound": ((Workspace, "bytes"), converted, (SMALL.astype(nl.bfloat16),), "tensor_tensor"),
    "run": ((Scratch, "get"), converted, (SMALL.astype(nl.float8_e5m2),), None),
    # Meanings may need arrays, too: tables of what is chosen, say.
    "linked": ((nisa.tensor_tensor, "lower"), doubled, (X,), "tensor_tensor"),
    "panels": (
        (Workspace, "panel"),
        multiplied,
        (X.astype(nl.bfloat16), X[:, :64].astype(nl.bfloat16)),
        "nc_matmul",
    ),
}


@pytest.mark.parametrize("when", MISSING)
def test_memory_that_is_missing_names_the_line(monkeypatch, when):
    asks, kernel, arrays, instruction = MISSING[when]
    with nki.World(host="inprocess", platform="trn2") as world:
        with monkeypatch.context() as patch:
            patch.setattr(*asks, missing)
            with pytest.raises(OutOfMemoryError, match=r"no memory left: .*3.00 GiB") as caught:
                world.run(kernel, *arrays)
        assert caught.value.location == line_of(kernel, "# ADDED")
        assert instruction is None or caught.value.instruction == f"nisa.{instruction}"
        assert caught.value.core == 0
        assert isinstance(caught.value.__cause__, MemoryError)
        assert world.run(kernel, *arrays)


def test_tiles_that_find_no_room_have_a_type(monkeypatch):
    with nki.World(host="inprocess", platform="trn2") as world:
        with monkeypatch.context() as patch:
            patch.setattr("nki_dist.runtime.memory.aligned", missing)
            with pytest.raises(OutOfMemoryError, match=r"no memory left: .*3.00 GiB") as caught:
                world.run(doubled, X)
        assert caught.value.core == 0
        np.testing.assert_array_equal(world.run(doubled, X)[0], 2 * X)


def test_stacks_that_find_no_room_are_given_back(monkeypatch):
    with nki.World(host="inprocess", platform="trn2") as world:
        with monkeypatch.context() as patch:
            world.start()
            patch.setattr("nki_dist.runtime.hosts.aligned", lambda n: missing() if n else b"")
            with pytest.raises(OutOfMemoryError, match=r"no memory left: .*3.00 GiB"):
                world.run(doubled, X)
        np.testing.assert_array_equal(world.run(doubled, X)[0], 2 * X)
