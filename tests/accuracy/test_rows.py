"""Measured rows: bench/data is as its page says; sources of foreign kernels."""

import importlib
import inspect
import re

import numpy as np
import pytest

from bench.accuracy import checkouts, public
from bench.accuracy.rows import (
    DATA,
    FIRST,
    PUBLIC,
    Result,
    all_rows,
    chosen,
    read_results,
    write_results,
)
from bench.accuracy.simulate import BUILDERS
from tests.accuracy.fixtures import row

ROWS = all_rows()


def test_ids_are_unique_and_times_positive():
    assert len({r.id for r in ROWS}) == len(ROWS)
    assert all(r.measured_us > 0 and r.lnc in (1, 2) for r in ROWS)
    assert {r.platform for r in ROWS} == {"trn1", "trn2"}


def test_configurations_are_read_with_their_types():
    (one,) = [r for r in ROWS if r.id == "att-vnc-13"]
    assert (one.set, one.family, one.lnc, one.flags) == (FIRST, "att", 1, frozenset("rd"))
    assert one.config == {
        "bs": 3,
        "s_kv": 2048,
        "s_q": 1024,
        "d": 128,
        "scale": 0.125,
        "dtype": "bf16",
    }
    (tokens,) = [r for r in ROWS if r.id == "mlptkg-swap-01"]
    assert tokens.config["down_coltile"] is True


def test_public_rows_name_problem_and_kernel():
    (one,) = [r for r in ROWS if r.id == "autocomp/gemm/4"]
    assert (one.set, one.family, one.problem, one.inputs) == (
        PUBLIC,
        "autocomp",
        "autocomp/gemm",
        "gemm",
    )
    assert one.kernel.endswith("2_gemm_trace.py#4:test")


def test_flags_and_families_are_explained():
    page = (DATA / "README.md").read_text()
    explained = set(re.findall(r"^\| `(\w)` \|", page, re.MULTILINE))
    assert {flag for r in ROWS for flag in r.flags} <= explained
    for r in ROWS:
        assert f"`{r.family}`" in page, r.family


def test_every_row_has_a_builder():
    for r in ROWS:
        if r.set == FIRST:
            assert r.family in BUILDERS, r.id
        else:
            kind = r.inputs.partition(":")[0]
            assert kind == "nkibench" or kind in public.INPUTS, r.id


def test_doubtful_rows_are_not_run():
    rows = [row("att-1", flags="rl"), row("rmsq-1", flags="r"), row("kda/a/1", flags="xf")]
    assert [r.id for r in chosen(rows)] == ["att-1"]
    assert chosen(ROWS, ["kda"], "silu") and all(
        r.family == "kda" and "silu" in r.id for r in chosen(ROWS, ["kda"], "silu")
    )


def test_results_are_kept_in_the_order_of_the_rows(tmp_path):
    path = tmp_path / "results.jsonl"
    assert read_results(path) == {}
    kept = {"b": Result("b", 2.5, critical={"tensor": 2.0}), "a": Result("a", error="refused")}
    write_results(path, kept, [row("a"), row("c"), row("b")])
    assert list(read_results(path).values()) == [kept["a"], kept["b"]]


# ---- foreign files -------------------------------------------------------------------------------


def test_a_trace_holds_its_candidates_the_latest_outside():
    text = "Node(parent=Node(parent=None, code='first = 1'), score=3, code='second = 2')"
    assert public.trace(text) == ["first = 1", "second = 2"]


def test_sources_that_are_no_files_have_lines():
    module = checkouts.from_text("class A:\n    def f(self):\n        return 1\n", "made up#1")
    assert module.A.__module__ == module.__name__ == "foreign_made_up_1"
    assert inspect.getsource(module.A.f) == "    def f(self):\n        return 1\n"


def test_packages_that_are_not_installed_can_be_imported():
    def imported():
        return importlib.import_module("absent_package.nn").Module

    with pytest.raises(ModuleNotFoundError):
        imported()
    with checkouts.stand_ins([("absent_package", "absent_package.nn"), ("numpy",)]):
        assert type(imported()) is type
        assert np is importlib.import_module("numpy"), "what is installed is used"
    with pytest.raises(ModuleNotFoundError):
        imported()


def test_files_find_their_neighbours(tmp_path, monkeypatch):
    monkeypatch.setenv(checkouts.VARIABLE, str(tmp_path))
    (tmp_path / "neighbour_of_a_kernel.py").write_text("value = 7\n")
    (tmp_path / "kernel.py").write_text("from neighbour_of_a_kernel import value\n")
    assert checkouts.from_file("kernel.py").value == 7


def test_without_checkouts_the_variable_is_named(monkeypatch):
    monkeypatch.delenv(checkouts.VARIABLE, raising=False)
    with pytest.raises(SystemExit, match=r"NKI_REF isn't set.*bench/data/README"):
        checkouts.root()
