"""`nki-dist migrate`: what it prints, writes and refuses."""

from __future__ import annotations

import json

import pytest

from nki_dist.cli import main

BEFORE = "import neuronxcc.nki.language as nl\n\nfor i in nl.affine_range(3):\n    pass\n"
AFTER = "import nki.language as nl\n\nfor i in range(3):\n    pass\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(BEFORE)
    return path


def test_a_diff_by_default(file, capsys):
    assert main(["migrate", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "-for i in nl.affine_range(3):\n+for i in range(3):\n" in shown
    assert file.read_text() == BEFORE


def test_check(file, capsys):
    assert main(["migrate", "--check", str(file)]) == 1
    assert "would change" in capsys.readouterr().out
    file.write_text(AFTER)
    assert main(["migrate", "--check", str(file)]) == 0
    assert capsys.readouterr().out == ""


def test_write_twice(file, capsys):
    assert main(["migrate", "--write", str(file)]) == 0
    assert file.read_text() == AFTER
    assert "rewritten" in capsys.readouterr().out
    assert main(["migrate", "--write", str(file)]) == 0
    assert capsys.readouterr().out == ""


def test_line_ends_stay(file):
    file.write_bytes(BEFORE.replace("\n", "\r\n").encode())
    assert main(["migrate", "--write", str(file)]) == 0
    assert file.read_bytes() == AFTER.replace("\n", "\r\n").encode()


def test_json(file, capsys):
    file.write_text(BEFORE + "\nnl.all_reduce(1)\n")
    assert main(["migrate", "--json", "--to", "0.7", str(file)]) == 0
    (report,) = json.loads(capsys.readouterr().out)["files"]
    assert report["changed"] and {c["rule"] for c in report["changes"]} == {"import", "range"}
    (decision,) = report["decisions"]
    assert (decision["rule"], decision["line"]) == ("removed", 6)
    assert decision["page"].startswith("nki/migration/index.rst")


def test_decisions_on_stderr(file, capsys):
    file.write_text("import neuronxcc.nki.language as nl\nnl.all_reduce(1)\n")
    main(["migrate", str(file)])
    assert f"{file}:2: nl.all_reduce has no successor" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["def f(:\n", None])
def test_no_python_and_no_file(file, capsys, text):
    file.unlink()
    if text is not None:
        file.write_text(text)
    assert main(["migrate", "--write", str(file)]) == 1
    assert f"{file} can't be migrated" in capsys.readouterr().err
    assert text is None or file.read_text() == text
