"""`nki-dist nccom-test`: options, columns, units and checks, as the guide has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.collectives_time import time_us
from nki_dist.cli import main
from nki_dist.cli.nccom_test.plan import Plan
from nki_dist.collectives.choose import VARIABLE
from nki_dist.topology.topology import system

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (VARIABLE, "NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def nccom(line: str, *more: str) -> int:
    return main(["nccom-test", *line.split(), *more])


def rows(text: str) -> tuple[list[str], list[list[str]], float]:
    """The names of the columns, the cells below them, and the average."""
    lines = text.splitlines()
    last = next(n for n, line in enumerate(lines) if line.startswith("Avg bus bandwidth:"))
    average = lines[last].split("\t")[1]
    assert average.endswith("GB/s")
    return lines[0].split(), [x.split() for x in lines[1:last]], float(average[:-4])


# ---- the table ----------------------------------------------------------------------------------


def test_a_sweep_has_the_guides_columns_and_the_simulated_times(capsys):
    assert nccom("allr -r 64 -b 1KB -e 1GB -f 4 -d bf16 --show-algorithm") == 0
    printed = capsys.readouterr()
    names, cells, average = rows(printed.out)
    assert names == [
        *("size(B)", "count(elems)", "type", "time:avg(us)", "algbw(GB/s)", "busbw(GB/s)"),
        "algorithm",
    ]
    assert [int(row[0]) for row in cells] == [KIB * 4**n for n in range(11)]
    buses = []
    for size, count, kind, us, alg, bus, algorithm in cells:
        name, expected = time_us(int(size))  # of docs/collectives_time.md
        assert (kind, int(count) * 2, algorithm) == ("bf16", int(size), name)
        assert float(us) == pytest.approx(expected, abs=0.006)
        buses.append(int(size) / GIB / (expected / 1e6) * 2 * 63 / 64)
        assert float(alg) == pytest.approx(buses[-1] / 2 / 63 * 64, abs=0.006)
        assert float(bus) == pytest.approx(buses[-1], abs=0.006)
    assert average == pytest.approx(sum(buses) / 11, abs=1e-4)
    assert printed.err == ""


# Table of bus bandwidth factors in the guide; 1 where it says 1. all_gatherv isn't in it, its
# example is.
FACTORS = {
    "allr": 2 * 3 / 4,
    "allg": 3 / 4,
    "redsct": 3 / 4,
    "sendrecv": 1,
    "alltoall": 3 / 4,
    "permute": 1,
    "alltoallv": 3 / 4,
    "allgv": 3 / 4,
}


@pytest.mark.parametrize("operation", FACTORS)
def test_bandwidths_in_both_units(operation, capsys, tmp_path):
    for unit, scale in (("GiB", GIB), ("GB", 10**9)):
        more = ["--report-to-json-file", "r.json", "--bandwidth-unit", unit]
        assert nccom(f"{operation} -r 4 -b 1MB -e 1MB", *more) == 0
        (row,) = json.loads((tmp_path / "r.json").read_text())["results"]
        assert row["algbw(GB/s)"] == pytest.approx(MIB / row["time:avg(us)"] * 1e6 / scale)
        assert row["busbw(GB/s)"] == pytest.approx(FACTORS[operation] * row["algbw(GB/s)"])


def test_times_are_those_of_profiles():
    @nki.jit
    def reduced(x, with_it):
        src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        dst = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=src, src=x)
        if with_it:
            group = ncc.ReplicaGroup([list(range(8))])
            ncc.all_reduce(srcs=[src], dsts=[dst], replica_group=group, op=nl.add)
        return dst if with_it else src

    took, waited = [], []
    nccom("allr -r 8 -d fp32 -b 16KB -e 1MB -f 64 --report-to-json-file r.json")
    for row in json.loads(Path("r.json").read_text())["results"]:
        x = nki.TensorSpec((row["count(elems)"],), np.float32)
        with nki.World(ranks=8, lnc=2, host="inprocess") as world:
            both = [world.estimate(reduced, x, with_it).total_us for with_it in (True, False)]
        took.append(row["time:avg(us)"])
        waited.append(both[0] - both[1] - took[-1])
    assert took[1] > 3 * took[0]
    assert 0 <= waited[0] < 0.5  # until the collective knows that the copy is there
    assert waited[1] == pytest.approx(waited[0])


def test_report_has_results_and_configuration(capsys, tmp_path):
    line = "-r 32 --minbytes 1kb --maxbytes 1mb --stepfactor 8 --datatype fp32 --check allg"
    file = ["--report-to-json-file", "nccom-results.json", "--show-input-output-size"]
    assert nccom(line, *file) == 0
    report = json.loads((tmp_path / "nccom-results.json").read_text())
    names, cells, _ = rows(capsys.readouterr().out)
    assert [list(row) for row in report["results"]] == [names] * 4
    assert names[2:4] == ["total_input_size(B)", "total_output_size(B)"]
    assert [row[2:4] for row in cells] == [[str(32 * 8**n), str(1024 * 8**n)] for n in range(4)]
    assert report["check"]["checked"] == [1024 * 8**n for n in range(4)]
    assert report["config"]["platform"] == "trn2" and report["config"]["lnc"] == 2


def test_a_report_that_cant_be_written(capsys):
    assert nccom("allr -r 2 --report-to-json-file there/isnt/r.json") == 1
    assert "No such file" in capsys.readouterr().err


# ---- the command lines of the guide -------------------------------------------------------------

GUIDE = (
    "-r 2 allr",
    "-r 2 --minbytes 1kb --maxbytes 1gb --stepfactor 4 --datatype fp32 allr",
    "-r 32 --minbytes 1kb --maxbytes 1mb --stepfactor 8 --datatype fp32 --check allg",
    "-r 8 --custom-src-target-pairs pairs.json permute -b 1MB -e 1MB --check",
    "-r 8 --minbytes 1kb --maxbytes 1mb --stepfactor 8 --stats avg p25 p50 --iters 1000 allg",
    "-r 16 allr -b 4 -e 1gb -f 16 -d fp32 --show-algorithm",
    "allgv -r 4 -N 1 -b 2048 -e 2048 -d fp16 --check",
    "-r 64 -N 2 -b 8 -e 1GB -f 2 -n 50 -w 5 -d fp32 allr --hosts 127.0.0.1 10.1.4.138",
    "-r 2 -N 2 -d fp32 alltoallv -b 1MB -e 1MB --hosts a b -c",
    "-r 64 -N 2 allr --slurm-mode --slurm-job-id 12345",
    "allg -b 512kb -e 512kb -r 32 -n 10 -d fp32 -w 1 -f 512",
)
PAIRS = [[0, 1], [1, 0], [2, 3], [3, 2], [4, 4], [5, 5], [6, 6], [7, 7]]
FILES = {"pairs.json": {"src_target_pairs": [PAIRS]}}


@pytest.fixture
def files(tmp_path):
    for name, found in FILES.items():
        (tmp_path / name).write_text(json.dumps(found))


@pytest.mark.parametrize("line", GUIDE)
def test_lines_of_the_guide_run(line, files, capsys):
    assert nccom(line) == 0
    printed = capsys.readouterr()
    rows(printed.out)
    assert ("sizes are right" in printed.err) == ("-c" in line.split() or "--check" in line)
    given = [o for o in ("--hosts", "--iters", "--slurm-mode") if f" {o}" in line]
    assert all(option in printed.err for option in given)


def test_ranks_divided_over_instances_cross_efa(capsys):
    def first(line):
        assert nccom(line, "-b", "8", "-e", "8") == 0
        return float(rows(capsys.readouterr().out)[1][0][3])

    assert first("allr -r 32") < 10 < first("allr -r 32 -N 2")
    assert first("allr -r 128") == first("allr -r 128 -N 2")
    assert first("allr -r 32 -N 2 --platform trn2-ultraserver") < 15  # NeuronLink between them
    assert first("allr -r 32 --lnc 1") != first("allr -r 32")


def test_the_algorithm_that_was_asked_for(capsys, monkeypatch):
    line = "allr -r 8 -b 1MB -e 1MB --show-algorithm"
    for name in ("ring", "rdh"):
        assert nccom(line, "--algorithm", name, "--check") == 0
        assert rows(capsys.readouterr().out)[1][0][-1] == name
    monkeypatch.setenv(VARIABLE, "kangaring")
    assert nccom(line) == 0
    assert rows(capsys.readouterr().out)[1][0][-1] == "kangaring"
    assert nccom(line.replace("allr", "permute")) == 0
    assert rows(capsys.readouterr().out)[1][0][-1] == "direct"


def test_groups_share_the_links():
    def us(*groups):
        return Plan("allg", "fp32", system("trn2", 8), tuple(range(8)), groups).time_us(MIB << 6)[1]

    assert us((0, 4), (1, 5), (2, 6), (3, 7)) > us((0, 4)) == us((1, 5))
    line = "allg -r 8 -d fp32 -b 64MB -e 64MB --report-to-json-file r.json"
    assert nccom(line, "--data-parallel-dimension", "2") == 0
    (row,) = json.loads(Path("r.json").read_text())["results"]
    assert row["time:avg(us)"] == us((0, 4), (1, 5), (2, 6), (3, 7))


# ---- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, sizes",
    [
        ("", [32 * MIB]),
        ("-b 8 -e 16 -i 4", [8, 12, 16]),
        ("-b 8 -e 32 -f 2", [8, 16, 32]),
        ("-b 8 -e 31 -f 2", [8, 16]),
        ("-b 2k -e 4KiB -i 1kb", [2048, 3072, 4096]),
        ("-b 100 -e 200 -d fp32", [100 + 8 * n for n in range(13)]),
    ],
)
def test_sizes_of_a_sweep(options, sizes, capsys):
    assert nccom("allr -r 4 " + options) == 0
    assert [int(row[0]) for row in rows(capsys.readouterr().out)[1]] == sizes


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, message",
    [
        ("-r 4", "no operation; allowed: all_reduce, allr"),
        ("everything -r 4", "'everything'; allowed"),
        ("allr -r 0", "-r 0; must be positive"),
        ("allr -r 4 --check ones", "allowed: random, all_ones"),
        ("allr -r 4 --stats median", "allowed: avg, p0 to p100"),
        ("allr -r 4 --input-shape [1,1][2,2]", "--input-shape: says how a tensor lies in SBUF"),
        ("allr -r 4 --cc-dim 0", "--cc-dim: says how a tensor lies in SBUF"),
        ("allr -r 4 --shared-output-buff", "HBM belongs to one rank here"),
        ("allr -r 4 --sb2sb", "--sb2sb: tensors in SBUF: no figure says what they save"),
        ("allr -r 4 --streams-json s.json", "--streams-json: collectives beside each other"),
        ("allr -r 4 -b 1XB", "allowed: a positive number of bytes"),
        ("allr -r 4 -e 1MB", "-b 32M is more than -e 1MB"),
        ("allr -r 4 -b 1 -e 4 -i 1 -f 2", "give -i or -f, not both"),
        ("allr -r 4 -b 1 -e 4 -f 1", "-f 1; must be 2 or more"),
        ("allr -r 4 -b 6 -e 6 -d fp32", "multiple of 4 bytes, such as 8"),
        ("alltoall -r 6 -b 8 -e 8", "6 equal parts, so a multiple of 6 bytes, such as 12"),
        ("allr -r 128 -N 1", "puts 128 ranks on an instance; one of trn2 with LNC 2 has 64"),
        ("allr -r 64 -N 3", "can't be divided equally over -N 3"),
        ("allr -r 48 --platform inf2", "on 2 instances of inf2"),
        ("allr -r 4 --algorithm tree", "--algorithm tree; allowed: single_step_mesh"),
        ("allr -r 6 --algorithm rdh", "it needs a power of two"),
        ("permute -r 4 --algorithm ring", "send to each other directly"),
        ("allr -r 4 --custom-src-target-pairs p.json", "it is for permute"),
        ("permute -r 4 --data-parallel-dimension 2", "permute has no groups"),
        ("allr -r 4 --data-parallel-dimension 3", "must divide the 4 ranks"),
        ("allr -r 4 --custom-replica-groups none.json", "No such file"),
        ("allr -r 4 --custom-replica-groups pairs.json", "must be {"),
        ("permute -r 4 --custom-src-target-pairs pairs.json", "pairs of the ranks 0 to 3"),
        ("alltoallv -r 2 --variable-size-op-metadata c.json", "equal parts are checked; leave"),
        ("allr -r 4 --platform trn3-gen2 --check", "no world can be made of it"),
        ("allr -r 10 -N 2 --check -b 8 -e 8", "5 ranks on each instance, which has 64"),
    ],
)
def test_wrong_options_say_what_is_allowed(line, message, files, capsys):
    assert nccom(line) == 1
    printed = capsys.readouterr()
    assert message in printed.err and printed.out == ""


@pytest.mark.parametrize(
    "groups", [[[0, 1], [2]], [[0, 1], [1, 2]], [[0, 1], [2, 4]], [[0, 1, 2, 3], []]]
)
def test_groups_have_every_rank_once(groups, tmp_path, capsys):
    (tmp_path / "groups.json").write_text(json.dumps({"replica_groups": [groups]}))
    assert nccom("allr -r 4 --custom-replica-groups groups.json") == 1
    assert "--custom-replica-groups groups.json: " in capsys.readouterr().err
