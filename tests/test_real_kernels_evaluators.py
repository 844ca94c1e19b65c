"""The bench of others' evaluators: what it calls right, wrong, refused and out of time."""

import json
import os
import sys
import textwrap

import numpy as np
import pytest

from bench.real_kernels import device, evaluators

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
    found = evaluators.compared([wanted + np.array([[0, 0.5]])], wanted)
    assert found == (pytest.approx(0.1), 0.5)
    found = evaluators.compared([wanted, wanted], (wanted, 2 * wanted))
    assert found == (pytest.approx(0.5), 0.0)
    assert evaluators.compared([wanted], wanted) == (0.0, 1.0)
    for got in ([wanted.T], [], [wanted * np.nan]):
        assert evaluators.compared(got, wanted) == (np.inf, 0.0)


def test_candidates_are_files_with_a_kernel_and_inputs_have_a_seed(tmp_path):
    impl = {"task": "t.py", "kernel": "k.py"}
    summary = {"rope": {"cases": {"0": {"impls": [impl]}}}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    runs = tmp_path / "workspaces" / "rope" / "runs"
    runs.mkdir(parents=True)
    for name, text in (("rp_v1", "def kernel(x): ..."), ("offline", "def simulate(x): ...")):
        (runs / f"{name}.py").write_text(text)
    ((name, arguments),) = evaluators.nkibench_jobs(tmp_path, tmp_path, 42)
    assert name == "rope/rp_v1" and arguments[0] == str(runs / "rp_v1.py")
    assert arguments[-4:] == ["--problem", "rope", "--seed", "42"]
    ((name, _),) = evaluators.nkibench_jobs(tmp_path, None, 0)
    assert name == "rope/k"


def test_errors_of_a_device_are_told_from_forecasts(tmp_path):
    records = [
        {
            "candidate": "runs/a.py",
            "rel_l2": 5e-6,
            "rel_l2_offline_pred": 9e-6,
            "rel_l2_gate": 2e-5,
        },
        {"candidate": "runs/b.py", "per_seed_rel_l2": {"0": 1e-7, "21": 3e-7}},
        {"candidate": "runs/offline_sim.py", "rel_l2": 1e-6},
        {"candidate": "runs/c.py", "latency_ms": 1.0},
    ]
    folder = tmp_path / "workspaces" / "p"
    folder.mkdir(parents=True)
    (folder / "candidates.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert device.of_devices(tmp_path) == {"p/a": 5e-6, "p/b": 3e-7}
    rows = [{"test": "p/a", "error": 3e-6, "equal": 0.25}, {"test": "p/c", "error": 1.0}]
    assert device.table(rows, tmp_path).splitlines()[2:] == [
        "| p/a | 5.000e-06 | 3.000e-06 | 4.0e-06 | 25.0 % |"
    ]


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


@pytest.mark.parametrize("harness, solution", [("0_x_test", "0_x_ref"), ("0_x", "0.x")])
def test_solutions_go_where_a_harness_says(tmp_path, harness, solution):
    harness = tmp_path / "harnesses" / "trn-a" / f"{harness}.py"
    solution = tmp_path / "sols" / "trn-a" / f"{solution}.py"
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
