"""Simulated against published times of a prompt and of a token: python -m bench.models [--json]

Rows of `data/model_rows.csv`, which are aws-neuron-sdk's with one text at a time and bfloat16
weights: Trn1 from about-neuron/benchmarks/trn1/latency_data_decoder.csv, Trn2 without speculative
decoding from libraries/nxd-inference/tutorials/llama70b_perf_comparison.csv and the same of 405b,
whose prompts of 10,000 tokens go into a bucket of 12,288. Models of examples/llm are run
dry; a token stands in the middle of the output. No figure of the simulator is fitted to them.
"""

from __future__ import annotations

import csv
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import ml_dtypes

import nki_dist as nki

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples" / "llm"))

import shapes  # noqa: E402
from config import Config, UsageError  # noqa: E402
from model import Model  # noqa: E402
from weights import Layout  # noqa: E402


def simulated(row: dict[str, str]) -> dict[str, Any]:
    """The times of a prompt and of a token, in ms, with their bands."""
    ranks, lnc = int(row["ranks"]), int(row["lnc"])
    first, more, context = (int(row[k]) for k in ("input", "output", "context"))
    config = Config.of(shapes.known(row["shape"]))
    with nki.World(ranks, lnc, row["platform"], "inprocess", dry=True) as world:
        layout = Layout(ranks, lnc)
        model = Model(world, config, layout, None, ml_dtypes.bfloat16, context)
        with world.session() as of_prompt:
            step = model.prompt([[0] * first])
        with world.session() as of_token:
            model.token(step, min(first + more // 2, context - 1))
        found = {"hbm_bytes": model.bytes}
        for name, session in (("ttft", of_prompt), ("tpot", of_token)):
            times = (session.device_us, session.low_us, session.high_us)
            found[name] = [us / 1e3 for us in times]
            total = session.total()
            found[f"{name} shares"] = [total.mfu, total.mbu, total.collectives]
        return found


def main() -> int:
    ratios: dict[str, list[float]] = {"ttft": [], "tpot": []}
    inside: dict[str, int] = {"ttft": 0, "tpot": 0}
    print("| instance, ranks | model | input, output | | published, ms | simulated (band) | off |")
    print("|---|---|---|---|---|---|---|")
    for row in csv.DictReader((HERE / "data" / "model_rows.csv").open()):
        started = time.perf_counter()
        where = f"{row['instance']}, {row['ranks']}"
        what = f"{where} | {row['shape']} | {row['input']}, {row['output']}"
        try:
            found = simulated(row)
        except UsageError as error:
            print(f"| {what} | | | {error} | |", flush=True)
            continue
        for name, words in (("ttft", "prompt"), ("tpot", "token")):
            published, (ms, low, high) = float(row[f"{name}_ms"]), found[name]
            ratios[name].append(ms / published)
            inside[name] += low <= published <= high
            times = f"{published:.1f} | {ms:.1f} ({low:.1f} to {high:.1f})"
            print(f"| {what} | {words} | {times} | {ms / published - 1:+.0%} |", flush=True)
        found["seconds"] = time.perf_counter() - started
        if "--json" in sys.argv:
            print(json.dumps({**row, **found}), file=sys.stderr)
    every = [r for of in ratios.values() for r in of]
    off = [abs(r - 1) for r in every]
    beyond = sum(not 0.5 <= r <= 2 for r in every)
    print(
        f"\n{len(every)} figures: median {statistics.median(off):.0%} off, {beyond} beyond 2 times"
    )
    for name, of in ratios.items():
        print(
            f"{name}: median ratio {statistics.median(of):.2f}, {min(of):.2f} to {max(of):.2f}; "
            f"{inside[name]} of {len(of)} inside the band"
        )
    return 0 if statistics.median(off) <= 0.25 and not beyond else 1


if __name__ == "__main__":
    sys.exit(main())
