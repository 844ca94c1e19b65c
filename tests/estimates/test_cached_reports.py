"""Reports that `nki-dist rank` keeps: written whole or not at all, and believed only as written."""

from __future__ import annotations

import json
import resource
from typing import Any

from nki_dist.cli.shared import programs as _programs
from nki_dist.cli.shared import timed as _timed


def test_a_file_that_cannot_be_written_is_said_and_leaves_nothing(tmp_path, capsys):
    """A limit on the size of files stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        _programs.write_cached(tmp_path / "kept" / "entry.json", {"kernels": [], "files": {}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list((tmp_path / "kept").iterdir()) == []
    assert "reports aren't kept" in capsys.readouterr().err


def test_damaged_reports_are_made_anew(tmp_path):
    entry = tmp_path / "entry.json"
    file = tmp_path / "read"
    file.write_text("1")
    good = {"kernels": [], "diagnostics": [], "files": _timed.digests([str(file)])}
    timed = {
        "kernel": "k",
        "launches": 1,
        "digest": "",
        "device_us": 1.0,
        "low_us": 1.0,
        "high_us": 2.0,
    }
    wrong: list[Any] = [
        {**good, "kernels": 3},
        {**good, "kernels": [3]},
        {**good, "kernels": [{**timed, "device_us": "x"}]},
        {**good, "kernels": [{**timed, "low_us": float("nan")}]},
        {**good, "kernels": [{**timed, "launches": None}]},
        {**good, "kernels": [{**timed, "digest": 3}]},
        {**good, "diagnostics": {"a": 1}},
        {**good, "diagnostics": [{"type": "X"}]},
        {name: value for name, value in good.items() if name != "kernels"},
    ]
    texts = [json.dumps(report) for report in wrong]
    for text in ("", "{", "[]", json.dumps({"files": {}}), json.dumps({"files": 3}), *texts):
        entry.write_text(text)
        assert _programs.read_cached(entry) is None
    entry.write_text(json.dumps(good))
    assert _programs.read_cached(entry) == good
    file.write_text("2")
    assert _programs.read_cached(entry) is None
    file.unlink()
    assert _programs.read_cached(entry) is None
