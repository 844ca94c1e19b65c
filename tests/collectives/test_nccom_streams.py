"""`nki-dist nccom-test --streams-json` and `--sb2sb`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nki_dist.cli import main
from nki_dist.cli.nccom_test.plan import Plan
from nki_dist.cli.nccom_test.streams import iteration, shares
from nki_dist.collectives.choose import VARIABLE
from nki_dist.errors import LaunchError
from nki_dist.topology.topology import system

MIB = 1 << 20
EVERYBODY = (tuple(range(64)),)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (VARIABLE, "NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def nccom(line: str, streams: object = None) -> int:
    if streams is None:
        return main(["nccom-test", *line.split()])
    Path("s.json").write_text(json.dumps({"streams": streams}))
    return main(["nccom-test", *line.split(), "--streams-json", "s.json"])


def plan(operation: str, groups: tuple[tuple[int, ...], ...] = EVERYBODY) -> Plan:
    return Plan(operation, "bf16", system("trn2", 64), tuple(range(64)), groups)


def blocks(text: str) -> list[list[list[str]]]:
    """The cells of each block's rows."""
    found: list[list[list[str]]] = []
    for line in text.splitlines():
        if line.split()[:1] == ["size(B)"]:
            found.append([])
        elif not line.startswith("Avg bus bandwidth:"):
            found[-1].append(line.split())
    return found


# ---- time ---------------------------------------------------------------------------------------


def test_one_stream_takes_as_long_as_without_streams():
    one = plan("allr")
    ((size, name, us),) = iteration([one], [MIB], [1])
    assert (size, name, us) == (MIB, *one.time_us(MIB))
    ((_, _, several),) = iteration([one], [MIB], [5])
    assert several == pytest.approx(us), "the mean of five that follow each other"


def test_streams_share_the_cores_for_collectives():
    """4 of a rank of two cores; the documentation gives the first stream those that are left."""
    assert [shares(plan("allr"), n) for n in (1, 2, 4)] == [[4], [3, 1], [1, 1, 1, 1]]
    with pytest.raises(LaunchError, match="5 streams; a rank has 4 CC-cores, one for each"):
        shares(plan("allr"), 5)
    alone = plan("allr").time_us(64 * MIB)[1]
    first, second = iteration([plan("allr"), plan("allr")], [64 * MIB] * 2, [1, 1])
    assert alone < first[2] < 1.5 * alone
    assert 3 * alone < second[2] < 4 * alone, "one channel in place of four"


def test_streams_share_links():
    """Where links are what takes longest: an all-gather over three streams' worth of traffic."""
    one, three = (plan("allg").time_us(64 * MIB, [plan("allg")] * n)[1] for n in (0, 2))
    assert one < three


def test_the_longer_stream_goes_on_alone():
    """Worked out by hand: together until the short one is done, the rest of the long one alone."""
    long, short = plan("allr"), plan("allg")
    together = [
        long.time_us(MIB, [short], 3)[1],
        short.time_us(1024, [long], 1)[1],
    ]
    alone = long.time_us(MIB, [], 3)[1]
    assert alone < together[0]
    (_, _, first), (_, _, second) = iteration([long, short], [MIB, 1024], [2, 3])
    assert second == pytest.approx(together[1])
    done = 3 * together[1] / together[0]
    assert 0 < done < 2
    assert first == pytest.approx((3 * together[1] + (2 - done) * alone) / 2)


def test_streams_on_groups_load_the_chips_that_both_are_on():
    halves = tuple(tuple(range(first, first + 32)) for first in (0, 32))
    whole, parts = plan("allr"), plan("redsct", halves)
    assert whole.time_us(64 * MIB, [parts])[1] == whole.time_us(64 * MIB, [whole])[1], (
        "a chip's ranks are in one of the halves"
    )


# ---- the command --------------------------------------------------------------------------------

TWO = [
    {"operation": "all_reduce", "datatype": "bf16", "stepfactor": 2, "minbytes": "1KB",
     "maxbytes": "8KB"},
    {"operation": "allg", "datatype": "fp32", "ops_per_iter": 2, "minbytes": "1KB",
     "maxbytes": "1KB"},
]  # fmt: skip


def test_a_block_for_each_stream_and_a_row_for_each_iteration(capsys):
    assert nccom("allg -r 64 --report-to-json-file r.json", TWO) == 0
    first, second = blocks(capsys.readouterr().out)
    assert [row[:3] for row in first] == [[str(1024 << n), str(512 << n), "bf16"] for n in range(4)]
    assert [row[:3] for row in second] == [["1024", "256", "fp32"]] * 4
    report = json.loads(Path("r.json").read_text())
    assert [len(s["results"]) for s in report["streams"]] == [4, 4]
    assert report["streams"][0]["config"]["operation"] == "all_reduce"
    assert report["streams"][1]["config"]["datatype"] == "fp32"


def test_streams_are_as_the_command_line_where_they_say_nothing(capsys):
    assert nccom("allg -r 16 -b 2KB -e 4KB -f 2 -d bf16", [{}, {"datatype": "fp32"}]) == 0
    first, second = blocks(capsys.readouterr().out)
    assert [row[:3] for row in first] == [["2048", "1024", "bf16"], ["4096", "2048", "bf16"]]
    assert [row[1:3] for row in second] == [["512", "fp32"], ["1024", "fp32"]]


def test_groups_of_a_stream(capsys):
    Path("g.json").write_text(json.dumps({"replica_groups": [[[0, 2], [1, 3]]]}))
    given = [{"custom_replica_groups": "g.json"}, {}]
    assert nccom("allr -r 4 -b 1KB -e 1KB", given) == 0
    first, second = blocks(capsys.readouterr().out)
    assert first != second


def test_streams_are_checked_one_by_one(capsys):
    assert nccom("-r 4 -d fp32 -c allg", [dict(stream, check=True) for stream in TWO]) == 0
    assert "no operation" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "line, streams, message",
    [
        ("allr -r 4", [], 's.json: must be {"streams": [{"operation": "all_reduce"'),
        ("allr -r 4", [{"nworkers": 2}], "stream 0 has nworkers; allowed: algorithm, check,"),
        ("allr -r 4", [{"ops_per_iter": 0}], "ops_per_iter 0 of stream 0; must be a positive"),
        ("allr -r 4", [{"ops_per_iter": True}], "ops_per_iter True of stream 0"),
        ("allr -r 4", [{"datatype": "fp64"}], "datatype fp64 of stream 0; allowed: uint8"),
        ("allr -r 4", [{"minbytes": [1]}], "minbytes [1] of stream 0; must be as on the command"),
        ("allr -r 4", [{}, {"operation": "permute"}], "permute of stream 1: how it shares links"),
        ("allr -r 4", [{"operation": "mul"}], "nccom-test: 'mul'; allowed: all_reduce"),
        ("-r 4", [{}], "nccom-test: no operation"),
        ("allr -r 128 --platform trn2", [{}], "on several instances, whose shares of EFA"),
        ("allr -r 4 -N 2", [{}], "on several instances, whose shares of EFA"),
    ],
)
def test_what_is_refused(capsys, line, streams, message):
    assert nccom(line, streams) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err and "[command-option]" in printed.err


# ---- SBUF ---------------------------------------------------------------------------------------


def test_tensors_in_sbuf_cost_as_in_hbm_and_a_note_says_so(capsys):
    assert nccom("allr -r 16 -b 1KB -e 64KB -f 8") == 0
    in_hbm = capsys.readouterr()
    assert nccom("allr -r 16 -b 1KB -e 64KB -f 8 --sb2sb") == 0
    in_sbuf = capsys.readouterr()
    assert in_sbuf.out == in_hbm.out
    assert "tensors in SBUF are priced as in HBM" in in_sbuf.err


def test_tensors_must_fit_into_sbuf(capsys):
    """212,984 bytes of each of 128 partitions: two tensors of 12 MiB fit, of 16 MiB they don't."""
    assert nccom("allr -r 4 -b 12MB -e 12MB --sb2sb") == 0
    capsys.readouterr()
    assert nccom("allr -r 4 -b 16MB -e 16MB --sb2sb") == 1
    assert "take 33554432; the SBUF of a core has 27261952 to use" in capsys.readouterr().err
    assert nccom("redsct -r 4 -b 16MB -e 16MB --sb2sb") == 0, "its output is a quarter"
