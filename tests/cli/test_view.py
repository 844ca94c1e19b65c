"""Pages of commands: `record --html`, `view`, `run --html-errors`, `pytest --nki-report`."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

PROGRAM = """
import sys
import numpy as np
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nl.store(out, tile)
    return out

@nki.jit
def halved(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:7])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
    nl.store(out[0:7], tile)
    return out

if "--noisy" in sys.argv:
    print("running")
x = np.arange(70, dtype=np.float32).reshape(7, 10)
doubled(x)
halved(x)
if "--fail" in sys.argv:
    @nki.jit
    def beyond(x):
        return nl.load(x[nl.ds(3, 9)])
    try:
        beyond(x)
    except Exception as error:
        raise RuntimeError("wrapped") from error
"""
HERE = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "NKI_DIST_HOST": "inprocess"}


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "nki_dist", *words]
    return subprocess.run(line, cwd=folder, env=HERE, capture_output=True, text=True)


def test_record_writes_a_page_for_each_launch(folder):
    np.save(folder / "want.npy", np.arange(70, dtype=np.float32).reshape(7, 10) * 4)
    words = ("record", "--html", "page.html", "--kernel", "doubled", "--expected", "want.npy")
    done = command(folder, *words, "prog.py")
    assert done.returncode == 0, done.stderr
    page = (folder / "page.html").read_text()
    assert "<title>doubled" in page and "they are 1/2 of what is expected" in page
    done = command(folder, "record", "--html", "both.html", "--max-size", "1.9", "prog.py")
    assert done.returncode == 0, done.stderr
    titles = [
        re.search("<title>(.*)</title>", (folder / f).read_text())[1]
        for f in ("both-1.html", "both-2.html")
    ]
    assert titles == ["doubled", "halved"]
    assert (folder / "both-1.html").stat().st_size <= 1.9 * (1 << 20)
    done = command(folder, "record", "--html", "small.html", "--max-size", "0.01", "prog.py")
    assert done.returncode == 1 and re.search("max_size=.* takes at least", done.stderr)
    assert "==== halved" in done.stdout  # answers don't depend on the page
    for size in ("nan", "0", "-3", "inf"):
        done = command(folder, "record", "--max-size", size, "prog.py")
        assert done.returncode == 1 and "must be positive" in done.stderr, size
        assert not done.stdout  # the program hasn't run


def fetched(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read()


def status_of(address: str) -> int:
    try:
        fetched(address)
    except urllib.error.HTTPError as error:
        return error.code
    return 200


def test_view_serves_until_ctrl_c(folder):
    line = [sys.executable, "-m", "nki_dist", "view", "prog.py"]
    with subprocess.Popen(
        line, cwd=folder, env=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            said = [server.stdout.readline() for _ in range(3)]
            (first, second) = (re.fullmatch(r"\w+: (http://\S+)\n", s)[1] for s in said[:2])
            match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{32})/1/", first)
            assert match and second == first[:-2] + "2/"
            page = fetched(first).decode()
            assert "<title>doubled" in page and "<title>halved" in fetched(second).decode()
            raw = fetched(f"{first}values?step=1")
            length = int.from_bytes(raw[:8], "little")
            place, kind, count = json.loads(raw[8 : 8 + length])["columns"]["dst 1"]
            got = np.frombuffer(raw, kind, count, 8 + length + place)
            np.testing.assert_array_equal(got, np.arange(70) * 2)
            origin = fetched(f"{first}origin?step=1&tensor=1&element=13").decode()
            assert "nisa.tensor_scalar wrote tile[1, 3]" in origin and ": <code>26</code>" in origin
            base = f"http://127.0.0.1:{match[1]}"
            for wrong in ("", "/", "/1/", f"/{match[2][:-1]}/1/", f"/{match[2]}/3/"):
                assert status_of(base + wrong) == 404, wrong
            assert status_of(first + "other") == 404
            for wrong in (
                "values?step=99",
                "values?step=x",
                "values",
                "origin?step=1&tensor=9&element=0",
            ):
                assert status_of(first + wrong) == 400, wrong
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 0
            assert match[2] not in server.stderr.read()
        finally:
            server.kill()


def test_view_says_that_there_is_nothing_to_look_at(folder):
    done = command(folder, "view", "--kernel", "other", "prog.py")
    assert done.returncode == 1 and "the program launched doubled (1), halved (1)" in done.stdout


def test_view_takes_its_port_before_the_program_runs(folder):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = command(folder, "view", "--port", str(taken.getsockname()[1]), "prog.py", "--noisy")
    assert done.returncode == 1 and "can't be had" in done.stderr and not done.stdout


def test_view_ends_as_the_program_does(folder):
    (folder / "exits.py").write_text(PROGRAM + "sys.exit(3)\n")
    line = [sys.executable, "-m", "nki_dist", "view", "exits.py"]
    with subprocess.Popen(
        line, cwd=folder, env=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            address = re.search(r"http://\S+", server.stdout.readline())[0]
            port = int(re.search(r":(\d+)/", address)[1])
            for _ in range(3):  # browsers that go away while they are answered
                with socket.create_connection(("127.0.0.1", port)) as left:
                    path = address.partition(str(port))[2]
                    left.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
                    left.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert "<title>doubled" in fetched(address).decode()
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 3
            assert not server.stderr.read()
        finally:
            server.kill()


def test_run_writes_errors_as_pages(folder):
    done = command(folder, "run", "--html-errors", "pages", "prog.py", "--fail")
    (page,) = (folder / "pages").iterdir()
    assert done.returncode == 1 and page.name == "index-range.html"
    assert f"wrote pages{os.sep}index-range.html" in done.stderr and "wrapped" in done.stderr
    assert "5 rows outside" in page.read_text()
    done = command(folder, "run", "--html-errors", "pages", "--json-errors", "prog.py", "--fail")
    assert {p.name for p in (folder / "pages").iterdir()} == {page.name, "index-range-2.html"}
    assert "nki-dist: wrote" not in done.stderr
    done = command(folder, "run", "--html-errors", "prog.py", "prog.py")
    assert done.returncode == 1 and "--html-errors prog.py: is no folder" in done.stderr


SUITE = """
import numpy as np
import pytest
import nki, nki.language as nl

@nki.jit
def beyond(x):
    return nl.load(x[nl.ds(3, 9)])

def test_passes():
    with pytest.raises(Exception):
        beyond(np.ones((7, 10), np.float32))

@pytest.mark.parametrize("n", ["<a>", "b/c"])
def test_fails(n):
    beyond(np.ones((7, 10), np.float32))

def test_other():
    assert False

@pytest.mark.xfail
def test_expected_to_fail():
    beyond(np.ones((7, 10), np.float32))
"""


def test_pytest_writes_a_page_for_each_failure(tmp_path):
    (tmp_path / "test_suite.py").write_text(SUITE)
    line = [sys.executable, "-m", "pytest", "-q", "-p", "nki_dist.pytest_plugin"]
    done = subprocess.run(
        [*line, "--nki-report=pages"], cwd=tmp_path, env=HERE, capture_output=True, text=True
    )
    names = sorted(p.name for p in (tmp_path / "pages").iterdir())
    assert names == ["test_suite.py_test_fails_a.html", "test_suite.py_test_fails_b_c.html"]
    assert "nki_dist report" in done.stdout and names[0] in done.stdout
    assert "5 rows outside" in (tmp_path / "pages" / names[0]).read_text()
    assert "3 failed, 1 passed, 1 xfailed" in done.stdout
    done = subprocess.run(
        [*line, "--nki-report=test_suite.py"],
        cwd=tmp_path,
        env=HERE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 4 and "--nki-report test_suite.py: is no folder" in done.stderr
