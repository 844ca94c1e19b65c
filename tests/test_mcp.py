"""`nki-dist mcp`, driven by the SDK's own client over stdio: answers, limits, what is refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nki_dist
from nki_dist.cli import main

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")
if not hasattr(mcp, "Client"):
    pytest.skip("needs version 2 of the SDK", allow_module_level=True)

KERNEL = """
import sys
import numpy as np
import nki, nki.isa as nisa, nki.language as nl

@nki.jit
def scaled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for column in range(0, x.shape[1], COLUMNS):
        tile = nl.load(x[:, column : column + COLUMNS])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nl.store(out[:, column : column + COLUMNS], tile)
    return out

x = np.zeros((ROWS, 1024), np.float32)
x[5, 7] = 1000.0
print("sum", float(scaled(x)[6].sum()), *sys.argv[1:])
"""
FAST = "COLUMNS, ROWS = 512, 120\n" + KERNEL
SLOW = "COLUMNS, ROWS = 32, 120\n" + KERNEL
WRONG = "COLUMNS, ROWS = 512, 130\n" + KERNEL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("fast", FAST), ("slow", SLOW), ("wrong", WRONG)):
        (tmp_path / "served" / f"{name}.py").parent.mkdir(exist_ok=True)
        (tmp_path / "served" / f"{name}.py").write_text(text)
    (tmp_path / "outside.py").write_text(FAST)
    return tmp_path / "served"


Calls = Sequence[tuple[str, dict[str, Any]]]


def server(folder: Path, *options: str) -> Any:
    package = str(Path(nki_dist.__file__).parents[1])
    return mcp.StdioServerParameters(
        command=sys.executable,
        args=["-m", "nki_dist", "mcp", f"--folder={folder}", *options],
        env={"PYTHONPATH": package, "OPENBLAS_NUM_THREADS": "1"},
    )


def asked(folder: Path, calls: Calls, *options: str) -> list[dict[str, Any]]:
    """The results of calls, one after the other, of one server."""

    async def talk() -> list[dict[str, Any]]:
        async with mcp.Client(server(folder, *options)) as client:
            found = [await client.call_tool(name, given) for name, given in calls]
            assert not any(result.is_error for result in found), found
            return [result.structured_content for result in found]

    return anyio.run(talk)


def test_tools_say_what_they_take(folder):
    async def talk() -> Any:
        async with mcp.Client(server(folder)) as client:
            return await client.list_tools()

    tools = {tool.name: tool for tool in anyio.run(talk).tools}
    assert set(tools) == {"check", "run", "estimate", "rank", "record", "report"}
    for tool in tools.values():
        parameters = tool.input_schema["properties"]
        assert not any(name.startswith("_") for name in parameters)
        assert all(name in tool.description for name in parameters)
    assert tools["rank"].input_schema["required"] == ["programs"]


def test_check_and_run_and_estimate(folder):
    check, wrong, run, text, estimate = asked(
        folder,
        [
            ("check", {"program": "fast.py"}),
            ("check", {"source": WRONG}),
            ("run", {"program": "fast.py", "arguments": ["--json", "two"]}),
            ("run", {"source": WRONG, "platform": "trn1"}),
            ("estimate", {"program": "fast.py"}),
        ],
    )
    assert check["ok"] and check["error"] is None
    (kernel,) = check["report"]["kernels"]
    assert (kernel["name"], kernel["launches"], kernel["diagnostics"]) == ("scaled", 1, [])

    assert not wrong["ok"] and wrong["status"] == 1
    (found,) = wrong["report"]["kernels"][0]["diagnostics"]
    line = WRONG.splitlines().index("        tile = nl.load(x[:, column : column + COLUMNS])") + 1
    assert (found["code"], found["file"], found["line"]) == ("partition-limit", "program.py", line)
    assert found["numbers"]["got"] == 130 and found["hint"]

    assert run["ok"] and run["stdout"] == "sum 1024.0 --json two\n"
    assert not text["ok"] and text["status"] == 1 and text["stdout"] == ""
    assert [d["code"] for d in text["diagnostics"]] == ["partition-limit"]

    assert estimate["ok"] and estimate["diagnostics"] == []
    (timed,) = estimate["kernels"]
    assert 0 < timed["low_us"] < timed["device_us"] < timed["high_us"]
    assert timed["launches"] == 1


@pytest.mark.slow
def test_rank_puts_the_faster_program_first(folder):
    (rank,) = asked(folder, [("rank", {"programs": ["slow.py", "fast.py", "wrong.py"]})])
    names = [Path(p["program"]).name for p in rank["report"]["programs"]]
    assert names == ["fast.py", "slow.py"]
    (failure,) = rank["report"]["failures"]
    assert Path(failure["program"]).name == "wrong.py" and not rank["ok"]
    assert failure["diagnostics"][0]["code"] == "partition-limit"


@pytest.mark.slow
def test_record_says_where_a_number_came_from(folder):
    want = np.ones((120, 1024), np.float32)
    np.save(folder / "want.npy", want)
    question = {"program": "fast.py", "index": [5, 7], "tensors": ["tile"]}
    plain, nowhere = asked(
        folder, [("record", question), ("record", {**question, "expected": "none.npy"})]
    )
    (launch,) = plain["report"]
    assert plain["ok"] and launch["kernel"] == "scaled"
    first = launch["first_non_finite"]
    assert (first["instruction"], first["index"]) == ("nisa.activation", [5, 7])
    assert launch["origin"]["value"] == "inf" and len(launch["writes"][0]) == 4
    assert nowhere["error"]["code"] == "call-value" and "none.npy" in nowhere["error"]["message"]


@pytest.mark.slow
def test_report_has_advice_and_writes_a_page(folder):
    report, again = asked(
        folder,
        [("report", {"program": "slow.py", "html": "slow.html"})] * 2,
    )
    assert report["ok"]
    (kernel,) = report["kernels"]
    assert kernel["kernel"] == "scaled" and 0 < len(kernel["lines"]) <= 10
    assert kernel["advice"] and all(found["saves_us"] > 0 for found in kernel["advice"])
    assert "scaled" in (folder / "slow.html").read_text()
    assert not again["ok"] and again["error"]["code"] == "call-value"


def test_a_program_outside_the_folder_is_refused(folder):
    (folder / "link.py").symlink_to(folder.parent / "outside.py")
    outside = str(folder.parent / "outside.py")
    found = asked(
        folder, [("check", {"program": p}) for p in ("../outside.py", outside, "link.py")]
    )
    assert [f["error"]["code"] for f in found] == ["call-value"] * 3
    assert all("isn't below the server's folder" in f["error"]["message"] for f in found)


def test_arguments_that_do_not_fit_are_errors_as_data(folder):
    both, neither, none, option = asked(
        folder,
        [
            ("run", {"program": "fast.py", "source": FAST}),
            ("run", {}),
            ("rank", {"programs": []}),
            ("check", {"program": "fast.py", "platform": "trn9"}),
        ],
    )
    assert (
        both["error"]["message"] == neither["error"]["message"] == "give either program or source"
    )
    assert "empty" in none["error"]["message"]
    assert not option["ok"] and "trn9" in str(option)


ENDS = {
    "os._exit": "import os; os._exit(0)",
    "a C library": "import ctypes; ctypes.CDLL(None)._exit(0)",
    "a signal": "import os; os.kill(os.getpid(), 9)",
    "another program": "import os; os.execv('/bin/true', ['true'])",
}


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["check", "estimate", "record", "report"])
def test_a_program_that_ends_its_process_is_no_answer(folder, tool):
    found = asked(folder, [(tool, {"source": FAST + end}) for end in ENDS.values()])
    for answer in found:
        assert not answer["ok"], answer
        code = (answer["error"] or answer["report"]["exception"])["code"]
        assert code == "program-ended"


def test_texts_that_no_file_can_hold_are_errors_as_data(folder):
    (folder / "round.py").symlink_to("round.py")
    calls = [
        ("check", {"program": "fast\0.py"}),
        ("run", {"program": "fast.py", "arguments": ["fine", "\0"]}),
        ("run", {"program": "fast.py", "policy": "a\0"}),
        ("rank", {"programs": ["fast.py", "\0"]}),
        ("record", {"program": "fast.py", "tensors": ["\0"]}),
        ("report", {"program": "fast.py", "html": "\0.html"}),
        ("check", {"program": "f" * 5000}),
        ("check", {"program": "round.py"}),
        ("run", {"program": "fast.py", "arguments": ["x" * 3_000_000]}),
        ("check", {"program": "fast.py", "timeout": -1.0}),
    ]
    found = asked(folder, calls)
    assert not any(answer["ok"] for answer in found)
    assert [answer["error"]["code"] for answer in found] == ["call-value"] * len(calls)
    assert "null byte" in found[0]["error"]["message"]


def test_what_a_program_says_can_be_passed_on_whatever_it_is(folder):
    odd = "import sys\nsys.stderr.write('{\"a\":' * 3_000 + '\\n')\nraise ValueError('\\ud800')\n"
    check, run = asked(folder, [("check", {"source": odd}), ("run", {"source": odd})])
    assert check["report"]["exception"]["type"] == "ValueError" and not check["ok"]
    assert not run["ok"] and run["status"] == 1


HANGS = """
import os, subprocess, sys, time
sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(sleeps, start_new_session=True)
open("pids", "w").write(f"{os.getpid()} {child.pid}")
print("began", flush=True)
while True:
    time.sleep(1)
"""
EATS = """
held = []
while True:
    held.append(bytearray(b"x") * (16 << 20))
"""
EATS_AT_ONCE = "held = bytearray(b'x') * (4 << 30)\n"
WRITES = """
with open("large", "wb") as file:
    for _ in range(64):
        file.write(bytes(1 << 20))
"""


def alive(pid: int) -> bool:
    """Whether a process is there and hasn't ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_call_that_hangs_is_ended_with_all_it_started(folder):
    hung, after = asked(
        folder, [("run", {"source": HANGS, "timeout": 3}), ("run", {"program": "fast.py"})]
    )
    assert not hung["ok"] and hung["error"]["code"] == "call-limit"
    assert "no end within 3 s" in hung["error"]["message"]
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    assert len(pids) == 2 and not any(map(alive, pids))
    assert after["ok"], "the server goes on"


DETACHES = """
import os, time
if not os.fork():
    if not os.fork():  # loses its parent, while the call that it belongs to goes on
        time.sleep(3)
        open("lived", "w").close()
    os._exit(0)
os.wait()
open("began", "w").close()
time.sleep(4)
"""


@pytest.mark.slow
def test_the_end_of_a_call_ends_nothing_of_another(folder):
    async def talk() -> list[Any]:
        async with mcp.Client(server(folder, "--jobs=2")) as client:
            found = []

            async def call(source: str) -> None:
                given = {"source": source}
                found.append((await client.call_tool("run", given)).structured_content)

            async with anyio.create_task_group() as group:
                group.start_soon(call, DETACHES)
                while not (folder / "began").exists():
                    await anyio.sleep(0.05)
                await call("print('short')")
            return found

    short, detached = anyio.run(talk)
    assert short["stdout"] == "short\n" and detached["ok"]
    assert (folder / "lived").exists()


@pytest.mark.slow
def test_a_call_may_not_ask_for_more_time_than_the_server_gives(folder):
    (hung,) = asked(folder, [("run", {"source": HANGS, "timeout": 500})], "--timeout=2")
    assert "no end within 2 s" in hung["error"]["message"]


@pytest.mark.slow
def test_a_call_that_eats_memory_is_ended(folder):
    slowly, at_once, after = asked(
        folder,
        [("run", {"source": s}) for s in (EATS, EATS_AT_ONCE)] + [("run", {"program": "fast.py"})],
        "--memory=400",
    )
    assert slowly["error"]["code"] == "call-limit"
    assert "MiB of memory" in slowly["error"]["message"]
    assert "at most 400 MiB" in slowly["error"]["message"]
    assert at_once["status"] == 1 and "MemoryError" in at_once["stderr"]
    assert after["ok"]


@pytest.mark.slow
def test_a_call_that_writes_a_large_file_fails(folder):
    (large,) = asked(folder, [("run", {"source": WRITES})], "--file-size=8")
    assert large["status"] == 1 and "File too large" in large["stderr"]
    assert (folder / "large").stat().st_size == 8 << 20


@pytest.mark.slow
def test_what_a_program_prints_is_cut_to_its_end(folder):
    source = "print('first'); print('x' * 100_000); print('last')"
    (long,) = asked(folder, [("run", {"source": source})])
    assert long["ok"] and len(long["stdout"]) == 16_384 and long["stdout"].endswith("last\n")


@pytest.mark.slow
def test_a_request_that_is_taken_back_ends_its_processes(folder):
    async def talk() -> None:
        async with mcp.Client(server(folder)) as client:
            with anyio.move_on_after(30):
                async with anyio.create_task_group() as group:
                    group.start_soon(client.call_tool, "run", {"source": HANGS})
                    while not (folder / "pids").exists():
                        await anyio.sleep(0.05)
                    group.cancel_scope.cancel()
            pids = [int(pid) for pid in (folder / "pids").read_text().split()]
            with anyio.fail_after(30):
                while any(map(alive, pids)):
                    await anyio.sleep(0.05)

    anyio.run(talk)


@pytest.mark.slow
def test_calls_leave_no_files(folder, tmp_path, monkeypatch):
    places = tmp_path / "places"
    places.mkdir()
    parameters = server(folder)
    parameters.env["TMPDIR"] = str(places)

    async def talk() -> None:
        async with mcp.Client(parameters) as client:
            source = "import tempfile; print(tempfile.mkstemp()[1])"
            made = (await client.call_tool("run", {"source": source})).structured_content
            assert made["ok"] and made["stdout"].startswith("tmp/")

    anyio.run(talk)
    assert list(places.iterdir()) == []


def test_wrong_options_of_the_command(folder, capsys):
    for option, said in (
        ("--timeout=0", "--timeout 0; must be positive"),
        ("--memory=-1", "--memory -1; must be positive"),
        ("--jobs=0", "--jobs 0; must be positive"),
        ("--folder=/nowhere/at/all", "there is no such folder"),
    ):
        assert main(["mcp", option]) == 1
        assert said in capsys.readouterr().err


def test_without_the_sdk_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert main(["mcp"]) == 1
    assert "nki-dist mcp needs the SDK" in capsys.readouterr().err
