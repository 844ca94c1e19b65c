"""The bench of others' evaluators: what it calls right, wrong, refused and out of time."""

from __future__ import annotations

import json
import os
import sys
import textwrap

import numpy as np
import pytest

from bench.real_kernels import evaluators

REFERENCE = """
import numpy as np
def get_inputs(): return [np.random.normal(size=(6, 9)).astype(np.float32)]
def forward(x): return 2 * x
def transform_to_nki_inputs(inputs): return inputs
def transform_nki_outputs(got, ref): return [got]
"""
KERNEL = """
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
@nki.jit
def {name}(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out{part}, nl.load(x) * {factor})
    return out
"""


def test_errors_are_relative_and_shapes_count():
    wanted = np.array([[3.0, 4.0]])
    assert evaluators.worst_error([wanted + np.array([[0, 0.5]])], wanted) == pytest.approx(0.1)
    assert evaluators.worst_error([wanted, wanted], (wanted, 2 * wanted)) == pytest.approx(0.5)
    for got in ([wanted.T], [], [wanted * np.nan]):
        assert evaluators.worst_error(got, wanted) == np.inf


def environment():
    return {**os.environ, "PYTHONPATH": os.getcwd(), "OPENBLAS_NUM_THREADS": "1"}


@pytest.mark.parametrize(
    "name, factor, part, outcome, reason",
    [
        ("kernel", 2, "", "right", "error 0.0e+00"),
        ("optimized_kernel", 3, "", "wrong", "error 5.0e-01"),
        ("kernel", 2, "[0:5]", "refused", "shape-broadcast"),
        ("other", 2, "", "no kernel", "defines neither"),
    ],
)
def test_a_kernel_is_judged(tmp_path, name, factor, part, outcome, reason):
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "k.py").write_text(KERNEL.format(name=name, factor=factor, part=part))
    command = [sys.executable, "-m", "bench.real_kernels.evaluators"]
    command += [str(tmp_path / "k.py"), str(tmp_path / "reference.py")]
    row = evaluators.outcome_of(command, environment(), 120)
    assert row["outcome"] == outcome and row["reason"].startswith(reason)


@pytest.mark.parametrize(
    "program, outcome, reason",
    [
        ("print('Test passed'); print('Latency: 1.0 ms')", "right", ""),
        ("print('Test passed')", "right", "prints no latency"),
        ("print('Latency: 1.0 ms')", "right", ""),
        ("print('Test failed'); exit(1)", "wrong", "its own comparison"),
        ("print('Test passed', flush=True); 1 / 0", "error", "ZeroDivisionError"),
        ("import time; print('compiled', flush=True); time.sleep(60)", "out of time", "after"),
    ],
)
def test_a_harness_is_taken_at_its_word(program, outcome, reason):
    row = evaluators.outcome_of([sys.executable, "-c", program], environment(), 5)
    assert row["outcome"] == outcome and row["reason"].startswith(reason)


def test_solutions_go_where_a_harness_says(tmp_path):
    harness = tmp_path / "harnesses" / "trn-a" / "0_x_test.py"
    solution = tmp_path / "sols" / "trn-a" / "0_x_ref.py"
    for file, text in ((harness, "a = 1\n# SUBSTITUTE HERE\nb = 2"), (solution, "def test(x): 3")):
        file.parent.mkdir(parents=True)
        file.write_text(textwrap.dedent(text))
    ((name, (program,)),) = evaluators.autocomp_jobs(tmp_path, tmp_path)
    assert name == "trn-a/0_x"
    with open(program) as written:
        assert written.read() == "a = 1\ndef solution(x): 3\nb = 2"


def test_the_table_has_the_last_row_of_each_kernel(tmp_path):
    rows = [("p/a", "wrong", "late"), ("p/a", "right", ""), ("q/b", "refused", "space-full")]
    lines = [json.dumps({"test": t, "outcome": o, "reason": r}) for t, o, r in rows]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    text = evaluators.table([tmp_path / "rows.jsonl"])
    assert "| all | 1 | 0 | 1 | 0 | 0 | 0 |" in text
    assert text.endswith("- q/b: refused, space-full")
