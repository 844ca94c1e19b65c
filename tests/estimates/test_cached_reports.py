"""Reports that `nki-dist rank` keeps: written whole or not at all, and believed only as written."""

import resource

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
    _programs.write_cached(entry, good)
    written = entry.read_text()
    assert _programs.read_cached(entry) == good
    digest, text = written.split("\n")
    for damaged in ("", "{", text, digest, written[:-1], written.replace("kernels", "colonel")):
        entry.write_text(damaged)
        assert _programs.read_cached(entry) is None
    entry.write_bytes(b"\xff")
    assert _programs.read_cached(entry) is None
    entry.write_text(written)
    assert _programs.read_cached(entry) == good
    file.write_text("2")
    assert _programs.read_cached(entry) is None
    file.unlink()
    assert _programs.read_cached(entry) is None
