"""The gate of foreign programs, on checkouts of our own: what it finds, and what it lets pass."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import nki_dist as nki
from bench.real_kernels import entries, found, gate, reading, record, rules
from bench.real_kernels.corpora import Corpus, Job, Options
from tests.foreign import constructs

PROGRAM = """
import numpy as np
import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


def tiles(count):
    return [nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.sbuf) for _ in range(count)]


def pairs(sizes):
    for n, size in enumerate(sizes):
        assert size > n - 1


@nki.jit
def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = tiles(2)[1]
    nisa.dma_copy(tile, x)
    {line}
    nisa.dma_copy(out, tile)
    return out


@nki.jit
def unlaunched(x):
    pairs((1, 2))
    return x


print(kernel(np.ones((4, 6), np.float32)).sum())
"""


FINE = "nisa.tensor_scalar(tile, tile, nl.add, 1.0)"
WRONG = "nisa.tensor_copy(tile[:, 0:2], tile)"


def jobs(checkout: Path, options: Options) -> Iterator[Job]:
    for program in sorted(checkout.glob("*.py")):
        command = [sys.executable, "-m", "bench.real_kernels.script", str(program)]
        yield Job(program.name, command, checkout)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two checkouts, one of which isn't known to have run, and the rows of what was found."""
    folder = tmp_path_factory.mktemp("checkouts")
    corpora = []
    for name, line, ran in (("fine", FINE, ""), ("ran", FINE, "measured"), ("wrong", WRONG, "")):
        (folder / name).mkdir()
        (folder / name / "program.py").write_text(PROGRAM.format(line=line))
        corpora.append(Corpus(name, lambda *_, ran=ran: ran, jobs))
    to = folder / "rows.jsonl"
    rows = list(gate.traced(corpora, folder, Options(folder), "", to, 2))
    assert [json.loads(line) for line in to.read_text().splitlines()] == rows
    return rows, corpora, folder


def test_a_program_is_traced_and_what_devices_ran_is_no_fault(run):
    got = found.collected(*run)
    (kernel,) = got["fine"].traced
    assert kernel[2] == "kernel"
    assert got["fine"].silent == []
    assert list(got["fine"].unexplained()) == []  # its comprehension is silent by evidence
    assert "| fine | 1 | 1 | 1 | 0 | 0 | 0 |" in "\n".join(found.figures(got))


def test_a_refusal_is_a_fault(run):
    got = found.collected(*run)
    (fault,) = [line for line in found.wrong(got) if "error" in line]
    assert fault.startswith("error wrong/program.py:22 [free-mismatch]")
    assert got["wrong"].traced == set()
    assert got["wrong"].count("error") == 1


def test_a_rule_without_evidence_that_a_kernel_breaks_is_a_fault_even_unlaunched(run):
    got = found.collected(*run)
    (fault,) = got["ran"].unexplained()
    assert (fault.code, fault.place) == ("python-targets", "ran/program.py:13")
    table = "\n".join(found.counterexamples(got))
    first = "ran/program.py:13 | measured"
    assert f"| `python-targets` | 3 | 1 | {first} | WRONG | fine/program.py:13 |" in table
    silent = "ran/program.py:9 | measured | silent"
    assert f"| `python-comprehension` | 3 | 1 | {silent} | fine/program.py:9 |" in table


def test_an_entry_lets_pass_what_it_names(monkeypatch, run):
    row = entries.Entry("ran/program.py", ("python-targets",), "a reason")
    monkeypatch.setattr(entries, "ENTRIES", (row,))
    assert list(found.collected(*run)["ran"].unexplained()) == []
    assert entries.entry("ran/program.py:1", "other") is None
    assert entries.entry("fine/program.py:1", "python-targets") is None


def test_rules_that_no_kernel_comes_to_are_told(run):
    places = rules.places()
    met = found.rules_met(run[0], places)
    assert len(met) > 20
    assert not {"matmul-moving-columns", "topk-index", "send-gpsimd"} & set(met)


def test_a_varied_sample_has_the_words_of_many_tests():
    class Test(NamedTuple):
        name: str

    tests = [Test(f"test_a[bf16-{n}_mode-0]") for n in range(10, 40)]
    tests += [Test("test_a[fp8_x4-4096_mode-0]"), Test("test_a[bf16-9000_mode-1_bias-1]")]
    kept = [test.name for test in record.varied(tests, 3)]
    assert set(kept[:2]) & {tests[-1].name} and tests[-2].name in kept
    assert record.varied(tests[:2], 5) in ([tests[0], tests[1]], [tests[1], tests[0]])


def test_every_entry_has_a_reason():
    for row in entries.ENTRIES:
        assert len(row.why) > 10
        assert row.where or row.codes


def test_reading_follows_calls_and_leaves_beta1_out(tmp_path):
    (tmp_path / "helpers.py").write_text("def helper():\n    raise ValueError\n")
    (tmp_path / "host.py").write_text("def host():\n    raise ValueError\n")
    (tmp_path / "kernel.py").write_text(
        "import nki\nfrom .helpers import helper\n@nki.jit\ndef kernel(x):\n    helper()\n"
    )
    (tmp_path / "old.py").write_text(
        "import neuronxcc.nki as nki\n@nki.jit\ndef old(x):\n    raise ValueError\n"
    )
    broken, read = reading.broken(tmp_path, ["*.py"], "neuronxcc")
    assert [(b.code, b.file, b.line) for b in broken] == [("python-raise", "helpers.py", 2)]
    assert read == 2


@pytest.fixture(scope="module")
def places():
    return rules.places()


def test_every_rule_has_a_place(places):
    from tests.refusals.page import rules as every

    assert places.keys() == {rule.name for rule in every()}


def test_a_kernel_comes_to_the_rules_that_judge_it(places):
    import nki_dist.isa as nisa
    import nki_dist.language as nl

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.dma_copy(out, tile)
        return out

    watch = rules.Watch([place for _, place in places.values()])
    before = sys.gettrace()
    watch.start()
    try:
        compiled = nki.simulate(kernel).compile(np.ones((4, 6), np.float32))
    finally:
        sys.settrace(before)
        rules.threading.settrace(before)
    met = {name for name, (_, place) in places.items() if place in watch.met}
    assert {"tile-partitions", "dma-hwdge-type"} <= met
    assert not {"matmul-moving-columns", "topk-index", "send-gpsimd"} & met
    assert "dma_copy: dst=hbm float32, src=sbuf float32" in constructs.of(compiled)
