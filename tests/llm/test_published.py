"""bench.models: its rows are the published ones, and a short one is simulated."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

import tests.llm.running  # noqa: F401  # the examples' folder
from bench import models

ROWS = list(csv.DictReader((models.HERE / "data" / "model_rows.csv").open()))
SDK = Path(os.environ.get("NKI_REF", "checkouts")) / "aws-neuron-sdk"


def test_a_token_and_a_prompt() -> None:
    row = next(r for r in ROWS if r["shape"] == "llama-2-7b")
    found = models.simulated(row)
    for name in ("ttft", "tpot"):
        ms, low, high = found[name]
        assert low < ms < high and 0.5 < ms / float(row[f"{name}_ms"]) < 2


@pytest.mark.skipif(not SDK.is_dir(), reason="NKI_REF has no aws-neuron-sdk")
def test_rows_are_the_published_ones() -> None:
    table = SDK / "about-neuron" / "benchmarks" / "trn1" / "latency_data_decoder.csv"
    rows = [r for r in csv.DictReader(table.open()) if r["Weight Storage Data Type"] == "bf16"]
    ours = [r for r in ROWS if r["platform"] == "trn1"]
    assert len(rows) == len(ours)
    names = {"ttft_ms": "TTFT Latency P50 (ms)", "tpot_ms": "TPOT Latency P50 (ms)"}
    names |= {"input": "Input Length", "output": "Output Length", "ranks": "TP Degree"}
    for mine, theirs in zip(ours, rows):
        for name, column in names.items():
            assert float(mine[name]) == float(theirs[column])
    for shape in ("70b", "405b"):
        file = (
            SDK / "libraries" / "nxd-inference" / "tutorials" / f"llama{shape}_perf_comparison.csv"
        )
        plain = list(csv.reader(file.open()))[1]
        mine = next(r for r in ROWS if r["shape"] == f"llama-3.1-{shape}")
        assert [float(mine["ttft_ms"]), float(mine["tpot_ms"])] == [float(v) for v in plain[1:3]]
