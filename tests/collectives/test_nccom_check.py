"""`nki-dist nccom-test --check`: real data on real ranks, and a mistake is found."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import main
from nki_dist.cli.nccom_test import check as _nccom_check
from nki_dist.cli.nccom_test.golden import Golden, goldens
from nki_dist.cli.nccom_test.plan import OPERATIONS, TYPES, Plan
from nki_dist.collectives.choose import VARIABLE
from nki_dist.topology.topology import system


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (VARIABLE, "NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def checked(line, capsys, status=0):
    """The notes of a run with a check."""
    assert main(["nccom-test", *line.split()]) == status
    return capsys.readouterr()


SHORT = [names[-1] for names in dict.fromkeys(o.names for o in OPERATIONS.values())]


@pytest.mark.parametrize("operation", SHORT)
@pytest.mark.parametrize("fill", ["random", "all_ones"])
def test_every_operation_is_right(operation, fill, capsys):
    ranks = 4 if operation == "allgv" else 6
    line = f"{operation} -r {ranks} -b {ranks * 28} -e {ranks * 28} -d int32 --check {fill}"
    assert f"{fill} data, seed 0: 1 of 1 sizes are right" in checked(line, capsys).err


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_is_right(kind, capsys):
    line = f"redsct -r 6 -b 48 -e 4800 -f 10 -d {kind} --check --seed 3 --lnc 1"
    assert "seed 3: 3 of 3 sizes are right" in checked(line, capsys).err


def test_ranks_that_are_left_out_and_groups(capsys, tmp_path):
    assert "1 of 1" in checked("allg -r 32 -N 2 -b 64 -e 64 --check", capsys).err
    line = "allr -r 12 --data-parallel-dimension 3 -b 30 -e 30 -d bf16 --check"
    assert "1 of 1" in checked(line, capsys).err


def test_sizes_that_dont_fit_are_timed_only(capsys):
    line = "allr -r 4 -b 1KB -e 16KB -f 4 --check --check-limit 64KB --report-to-json-file r.json"
    printed = checked(line, capsys)
    assert "2 of 2 sizes are right" in printed.err
    assert "not checked: 16384 bytes, whose tensors take up to 131072 bytes" in printed.err
    assert json.loads(Path("r.json").read_text())["check"]["not_checked"] == [16384]
    printed = checked("allr -r 4 --check --check-limit 1KB", capsys)
    assert "right" not in printed.err and "not checked: 33554432" in printed.err


def test_the_ranks_run_the_algorithm_that_was_asked_for(capsys, monkeypatch):
    """And nothing of it is left in the environment."""
    seen = []

    def look(self, world, size):
        seen.append(os.environ.get(VARIABLE))
        return ""

    monkeypatch.setattr(_nccom_check.Checker, "_check", look)
    for before in (None, "mesh"):
        if before:
            monkeypatch.setenv(VARIABLE, before)
        checked("allr -r 4 -b 8 -e 8 --check --algorithm ring", capsys)
        checked("allr -r 4 -b 8 -e 8 --check", capsys)
        assert os.environ.get(VARIABLE) == before
    assert seen == ["ring", None, "ring", "mesh"]


@nki.jit
def _forgets_the_last(x, begun, meta, opcode, groups, pairs):
    """An all-reduce of all but the last element."""
    src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    dst = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=src, src=x)
        nisa.dma_copy(dst=dst, src=begun)
    last = x.shape[0] - 1
    group = ncc.ReplicaGroup(groups)
    ncc.all_reduce(srcs=[src[:last]], dsts=[dst[:last]], replica_group=group, op=nl.add)
    return dst


def test_wrong_results_are_found_and_kept(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(_nccom_check, "_operation", _forgets_the_last)
    line = "allr -r 3 -b 20 -e 20 -d bf16 --check all_ones --report-to-json-file r.json"
    printed = checked(line, capsys, status=1)
    assert "size 20: rank 0 has 0.0 at element 9, expected 3.0" in printed.err
    assert "0 of 1 sizes are right" in printed.err
    assert printed.out.endswith("1 errors found - test failed\n")
    folder = Path(printed.err.split("tensors are in ")[1].split("\n")[0])
    output = np.load(folder / "output.npy")
    assert output.dtype == ml_dtypes.bfloat16 and output.tolist() == [3] * 9 + [0]
    assert np.load(folder / "golden.npy").tolist() == [3] * 10
    assert len(json.loads(Path("r.json").read_text())["check"]["wrong"]) == 1


def test_ranks_that_disagree_within_the_tolerance_are_found():
    """Sums that are right within rounding, but not the same on all ranks."""
    plan = Plan("allr", "fp32", system("trn2", 2), (0, 1), ((0, 1),))
    inputs = [np.float32([0.1, 0.7]), np.float32([0.2, 0.9])]
    total = inputs[0] + inputs[1]
    other = np.nextafter(total, np.float32(9))
    checker = _nccom_check.Checker(plan, "random", 0, 1 << 20)
    assert checker._compare(inputs, [total, total], 8) == ""
    assert checker._compare(inputs, [total, other], 8) == "ranks of a group end with different bits"


def test_what_a_sum_may_differ_by():
    plan = Plan("allr", "bf16", system("trn2", 3), (0, 1, 2), ((0, 1, 2),))
    inputs = [np.array([1.0, v], ml_dtypes.bfloat16) for v in (3.0, 0.0625, -5.0)]
    golden = next(goldens(plan, inputs, 2))
    assert golden.values.tolist() == [3.0, -1.9375]
    right = np.array([3.0, -1.9375], ml_dtypes.bfloat16)
    assert golden.differs(right) is None
    for wrong in (-1.90625, -1.96875, np.nan, np.inf):
        assert golden.differs(np.array([3.0, wrong], ml_dtypes.bfloat16)) == 1


def test_what_is_moved_is_compared_by_its_bits():
    golden = Golden(0, np.float32([0.0, np.nan]))
    assert golden.differs(np.float32([0.0, np.nan])) is None
    assert golden.differs(np.float32([-0.0, np.nan])) == 0
