"""Formats of other tools: Neuron Explorer's summary."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import main
from nki_dist.report.figures import covered

SCHEMA = Path(__file__).parents[1] / "data/explorer_summary.txt"


def schema():
    rows = [line.split() for line in SCHEMA.read_text().splitlines() if line[0] != "#"]
    return {name: (kind, unit) for name, kind, unit in rows}


@nki.jit
def product(a, b):
    """a @ b for a (96, 120) and b (120, 384), with a transpose of `a` on the Tensor engine."""
    out = nl.ndarray((96, 384), nl.float32, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    turned = nl.ndarray((120, 96), a.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=left, engine=nisa.tensor_engine)
    stationary = nl.ndarray((120, 96), a.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=stationary, src=turned, engine=nisa.vector_engine)
    total = nl.ndarray((96, 384), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=stationary, moving=right)
    result = nl.ndarray((96, 384), nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.exp, data=total)
    nl.store(out, result)
    return out


@pytest.fixture(scope="module")
def profile():
    a, b = np.ones((96, 120), ml_dtypes.bfloat16), np.ones((120, 384), ml_dtypes.bfloat16)
    return nki.profile(product, host="inprocess")(a, b).profile


def test_fields_are_those_of_the_schema(profile):
    (found,) = profile.summary().values()
    known = schema()
    assert set(found) <= set(known)
    for name, value in found.items():
        kind, _ = known[name]
        assert isinstance(value, int if kind == "integer" else (int, float)), name
        assert not name.endswith("_percent") or 0 <= value <= 1, name


def test_numbers_are_those_of_the_kernel(profile):
    found = profile.summary()["product"]
    assert found["total_time"] == pytest.approx(profile.device_us / 1e6)
    assert found["total_exec_time"] == pytest.approx(profile.total_us / 1e6)
    assert found["neuroncore_cycle_count"] == round(profile.device_us * 1200)
    read, written = 2 * (96 * 120 + 120 * 384), 4 * 96 * 384
    assert (found["hbm_read_bytes"], found["hbm_write_bytes"]) == (read, written)
    assert found["inputs_outputs_weights_size_bytes"] == read + written
    assert found["dma_transfer_count"] == 3
    assert found["model_flops"] == 2 * 96 * 120 * 384
    assert found["transpose_flops"] == 2 * 96 * 120 * 96
    assert found["hardware_flops"] == found["model_flops"] + found["transpose_flops"]
    counts = {e: found[f"{e}_engine_instruction_count"] for e in ("tensor", "vector", "scalar")}
    assert counts == {"tensor": 2, "vector": 1, "scalar": 1}
    assert found["matmul_instruction_count"] == 1
    assert found["psum_read_sbuf_write_count"] == 2
    assert found["psum_write_bytes"] == 2 * 120 * 96 + 4 * 96 * 384
    # Read: both operands of the matmul, the transpose's, and what is stored.
    assert found["sbuf_read_bytes"] == 2 * (120 * 96 + 120 * 384 + 96 * 120) + written
    assert found["mbu_estimated_percent"] == pytest.approx(
        (read + written) / profile.device_us / 716.8e3
    )
    assert found["mfu_estimated_percent"] == pytest.approx(
        found["model_flops"] / profile.device_us / 78.6432e6
    )
    assert found["mm_arithmetic_intensity"] == pytest.approx(
        found["model_flops"] / (read + written)
    )
    busy = {e.engine: e.busy_us for e in profile.engines}
    assert found["vector_engine_active_time"] == pytest.approx(busy["vector"] / 1e6)


def test_a_rank_is_one_summary_however_many_cores_it_has():
    @nki.jit
    def copy(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = x.shape[0] // 2
        mine = nl.ds(nl.program_id(0) * rows, rows)
        nl.store(out[mine], nl.load(x[mine]))
        return out

    with nki.World(ranks=2, lnc=2, host="inprocess") as world:
        run = world.run(copy, np.ones((30, 70), np.float32), profile=True)
    found = run.profile.summary()
    assert list(found) == ["copy_rank_0", "copy_rank_1"]
    assert all(s["hbm_read_bytes"] == 30 * 70 * 4 for s in found.values())


def test_times_that_overlap_count_once():
    spans = np.array([(5, 9), (0, 2), (1, 3), (6, 7), (3, 4)], np.float64)
    assert covered(spans, np.array([1.5, 4.5, 6.0, np.inf])).tolist() == [1.5, 4, 5, 8]


PROGRAM = """
import numpy as np
import nki_dist as nki
import nki_dist.language as nl

@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    return out

print("the program's own words")
for columns in {columns}:
    nki.simulate(copy)(np.ones((20, columns), np.float32))
"""


def written(tmp_path, columns):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(columns=columns))
    return str(path)


def test_the_command_prints_the_format_alone(tmp_path, capfd):
    program = written(tmp_path, [30, 50, 30])
    assert main(["profile", "--output-format", "summary-json", program]) == 0
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert list(found) == ["1_copy", "2_copy"] and "the program's own words" in err
    assert found["2_copy"]["hbm_read_bytes"] == 20 * 50 * 4
    assert main(["profile", "--output-format", "json", program]) == 0
    found = json.loads(capfd.readouterr().out)
    assert [p["launches"] for p in found] == [2, 1]


def test_the_command_writes_files(tmp_path, capfd):
    program, file = written(tmp_path, [30]), tmp_path / "numbers.json"
    page = tmp_path / "page.html"
    options = ["--output-file", str(file), "--html", str(page)]
    assert main(["profile", "--output-format", "json", *options, program]) == 0
    assert json.loads(file.read_text())[0]["kernel"] == "copy" and capfd.readouterr().out == ""
    assert "def copy(x):" in page.read_text()


def test_pages_of_several_kernels_are_numbered(tmp_path, capfd):
    folder, page = str(tmp_path / "found"), str(tmp_path / "page.html")
    assert main(["profile", "-o", folder, "--html", page, written(tmp_path, [30, 50])]) == 0
    names = sorted(path.name for path in tmp_path.glob("*.html"))
    assert names == ["page_1_copy.html", "page_2_copy.html"]
    assert f"report {tmp_path}/page_2_copy.html" in capfd.readouterr().out
