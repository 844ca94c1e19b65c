"""Chakra execution traces: read with a reader of our own, and compared with the programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import main
from nki_dist.collectives.operations import OPERATIONS
from nki_dist.errors import LaunchError
from nki_dist.report.chakra import COLLECTIVES, PAIRED, write_chakra

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

RANKS, COLUMNS = 6, 70
COMP, SEND, RECV, COLL = 4, 5, 6, 7  # NodeType in et_def.proto


def fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """(number, value) of every field of a message on the wire."""
    found: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            found.append((tag >> 3, value))
        else:
            assert tag & 7 == 2, "only numbers and what has a length are expected"
            size, at = varint(data, at)
            found.append((tag >> 3, data[at : at + size]))
            at += size
    return found


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def read(path: Path) -> list[dict]:
    """The nodes of a file, by the field numbers of et_def.proto."""
    data, at, messages = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        messages.append(data[at : at + size])
        at += size
    assert fields(messages[0]) == [(1, b"0.0.4")]
    nodes = []
    for message in messages[1:]:
        node: dict = {"id": 0, "deps": [], "us": 0}
        for number, value in fields(message):
            if number == 5:
                assert isinstance(value, bytes)
                place = 0
                while place < len(value):
                    dep, place = varint(value, place)
                    node["deps"].append(dep)
            elif number == 10:
                assert isinstance(value, bytes)
                (_, name), *rest = fields(value)
                node[name.decode()] = rest[0] if rest else None  # type: ignore[union-attr]
            else:
                node[{1: "id", 2: "name", 3: "type", 7: "us"}[number]] = value
        nodes.append(node)
    return nodes


@nki.jit
def step(x, rows, group, pairs):
    """Work, a sum, work that needs nothing of it, a step to the next rank, work that needs both."""
    partial = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    there = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    half = nl.ds(nl.program_id(0) * rows, rows)
    tile = nl.load(x[half])
    nl.store(partial[half], tile)
    ncc.all_reduce([partial], [total], group, nl.add)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
    ncc.collective_permute([total], [there], pairs)
    other = nl.load(there[half])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.add)
    nl.store(out[half], tile)
    return out


@pytest.fixture(scope="module")
def profile():
    world = nki.World(ranks=RANKS, lnc=2, host="inprocess")
    group = ncc.ReplicaGroup([[0, 2, 4], [1, 3, 5]])
    x = nki.TensorSpec((26, COLUMNS), nl.float32)
    pairs = ((0, 1), (1, 2), (2, 5))
    return world.dry_run(step, x, 13, group, pairs, profile=True).profile


def test_nodes_sizes_and_order(profile, tmp_path: Path) -> None:
    paths = profile.write_chakra(tmp_path, "t")
    assert [p.name for p in paths] == [f"t.{rank}.et" for rank in range(RANKS)]
    groups = json.loads((tmp_path / "comm_groups.json").read_text())
    sends = {0: 1, 1: 2, 2: 5}
    recvs = {target: source for source, target in sends.items()}
    nbytes = 26 * COLUMNS * 4
    for rank, path in enumerate(paths):
        nodes = read(path)
        middle = [SEND] * (rank in sends) + [RECV] * (rank in recvs)
        assert [n["type"] for n in nodes] == [COMP, COLL, COMP, *middle, COMP]
        assert [n["id"] for n in nodes] == list(range(len(nodes)))
        for node in nodes:
            assert all(d < node["id"] for d in node["deps"])
            assert node["is_cpu_op"] == (27, 0)
        load, total, scale, *exchanged, end = nodes
        assert total["deps"] == [load["id"]] and scale["deps"] == [load["id"]]
        assert all(n["deps"] == [total["id"]] for n in exchanged)
        assert {n["id"] for n in exchanged} | {scale["id"]} <= set(end["deps"])
        assert total["comm_size"] == (13, nbytes) and total["comm_type"] == (13, 0)
        assert groups[total["pg_name"][1].decode()] == [rank % 2, rank % 2 + 2, rank % 2 + 4]
        assert load["tensor_size"] == (13, 2 * nbytes)  # loaded and stored, by both cores together
        for node in exchanged:
            assert node["comm_size"] == (13, nbytes)
            assert node["comm_tag"] == (11, 1)
            ends = (rank, sends[rank]) if node["type"] == SEND else (recvs[rank], rank)
            assert (node["comm_src"], node["comm_dst"]) == ((11, ends[0]), (11, ends[1]))


def test_work_and_exchanges_make_up_the_time(profile, tmp_path: Path) -> None:
    """Rank 4 exchanges with its group only; its nodes lie one after the other, but for `scale`."""
    nodes = read(profile.write_chakra(tmp_path)[4])
    assert 0 < sum(n["us"] for n in nodes) <= profile.total_us + len(nodes)
    cores = [profile.timeline.core(n) for n in (8, 9)]
    took = max(c.done[2] for c in cores) - max(c.start[2] for c in cores)
    assert nodes[1]["us"] == pytest.approx(took / 1000, abs=1)


def test_launches_follow_each_other(profile, tmp_path: Path) -> None:
    paths = write_chakra([profile, profile], tmp_path)
    for rank, path in enumerate(paths):
        nodes = read(path)
        half = len(nodes) // 2
        assert nodes[half]["deps"] == [half - 1]
        tags = {n["comm_tag"] for n in nodes if n["type"] in (SEND, RECV)}
        assert tags == ({(11, 1), (11, 3)} if rank in (0, 1, 2, 5) else set())


def test_launches_on_other_ranks_are_refused(profile, tmp_path: Path) -> None:
    @nki.jit
    def copy(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    alone = nki.estimate(copy)(nki.TensorSpec((3, 5), nl.float32))
    with pytest.raises(LaunchError, match=r"on the same ranks; got \[1, 6\]") as error:
        write_chakra([profile, alone], tmp_path)
    assert error.value.code == "chakra-ranks"
    with pytest.raises(LaunchError, match="got no launches"):
        write_chakra([], tmp_path)


def test_every_collective_has_its_node() -> None:
    assert {*OPERATIONS} == {*COLLECTIVES, *PAIRED}


SCRIPT = """
import numpy as np, nki_dist as nki, nki_dist.language as nl
@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out
for _ in range(3):
    nki.simulate(copy)(np.ones((3, 5), np.float32))
"""


def test_command(tmp_path: Path) -> None:
    script = tmp_path / "copies.py"
    script.write_text(SCRIPT)
    folder = tmp_path / "traces"
    options = ["profile", "--output-format", "chakra"]
    assert main([*options, "--output-file", str(folder), str(script)]) == 0
    nodes = read(folder / "trace.0.et")
    assert [(n["type"], n["deps"]) for n in nodes] == [(COMP, []), (COMP, [0]), (COMP, [1])]
    assert all(n["tensor_size"] == (13, 2 * 15 * 4) for n in nodes)
