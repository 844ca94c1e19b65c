"""The tools of `nki-dist mcp`: what they take, the command behind each, and its answer as data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from inspect import Parameter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from nki_dist.cli.mcp.calls import TAIL, Calls, Ended
from nki_dist.errors import LaunchError, NkiError

_LINES: Final = 10  # kernel lines of a report, the costliest
_COMMAND: Final = ("-m", "nki_dist")
_ESTIMATE: Final = """
import json, sys
from nki_dist.cli.shared.observed import printing_to_stderr
from nki_dist.cli.shared.timed import timed
with printing_to_stderr():
    found = timed(sys.argv[1:])
print(json.dumps({name: found[name] for name in ("kernels", "diagnostics")}))
"""

# Parameters of all tools, and of those that look at a program.
_OF_ALL: Final = {"platform": str | None, "lnc": int | None, "timeout": float | None}
_OF_A_PROGRAM: Final = {"program": str | None, "source": str | None, "arguments": list[str] | None}


# ---- answers ------------------------------------------------------------------------------------


def _loaded(text: str) -> Any:
    """JSON, with texts that UTF-8 can write; None if it isn't JSON."""
    try:
        found = json.loads(text)
        return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def _answer(tool: str, ended: Ended) -> dict[str, Any]:
    """What a tool says beside how its call ended.

    No report is no answer, whatever the status says; stderr often has the reason.
    """
    if tool == "run":
        return _ran(ended)
    found = _loaded(ended.answer)
    if type(found) not in (dict, list):
        error = LaunchError(
            f"the call ended with status {ended.status} before there was an answer; stderr has "
            "what it said, if anything",
            code="program-ended",
            numbers={"status": ended.status},
        )
        return {"ok": False, "report": None, "error": error.to_dict()}
    if tool == "estimate":
        return {"ok": bool(found["kernels"]) and not found["diagnostics"], **found}
    if tool == "report":
        return {"kernels": [{**kernel, "lines": kernel["lines"][:_LINES]} for kernel in found]}
    return {"report": found}


def _ran(ended: Ended) -> dict[str, Any]:
    """Diagnostics are lines of JSON in stderr."""
    diagnostics, rest = [], []
    for line in ended.said.splitlines(keepends=True):
        found = _loaded(line) if line.startswith("{") else None
        if isinstance(found, dict) and {"code", "severity", "hint"} <= set(found):
            diagnostics.append(found)
        else:
            rest.append(line)
    return {"diagnostics": diagnostics, "stdout": ended.answer[-TAIL:], "stderr": "".join(rest)}


# ---- tools --------------------------------------------------------------------------------------


class Tools:
    """Run, check, time and look into kernels written for AWS's NKI, on simulated NeuronCores.

    A program is a Python script that imports nki (or neuronxcc.nki, or nki_dist) and launches
    kernels. Name a file below the server's folder (`program`), or pass the text (`source`). Begin
    with `check`; `estimate` and `rank` give simulated time without running kernels; `run` computes;
    `record` says where a number came from; `report` says where the time goes. Every result has
    `ok`; mistakes are data with `code`, `message`, `file`, `line` and `hint`.

    Args:
        folder: where programs run; files are named from here and lie below it.
        seconds: of each call; a call may ask for less.
        jobs: calls at once.
    """

    def __init__(self, folder: Path, calls: Calls, seconds: float, jobs: int) -> None:
        self._folder, self._calls, self._seconds = folder, calls, seconds
        self._turns = anyio.CapacityLimiter(jobs)

    def register(self, server: Any) -> None:
        """Add every tool to an `MCPServer`."""
        for tool in (self.check, self.run, self.estimate, self.rank, self.record, self.report):
            server.add_tool(self._served(tool), tool.__name__, structured_output=True)

    def _served(self, tool: Callable[..., Sequence[str]]) -> Any:
        """A tool as the SDK takes it, with the parameters that all have.

        Args:
            tool: gives the command, but for the program.
        """
        own = inspect.signature(tool, eval_str=True).parameters
        program = {} if "programs" in own else _OF_A_PROGRAM

        async def served(**given: Any) -> dict[str, Any]:
            values = {name: given.pop(name) for name in program}
            options = _options(platform=given.pop("platform"), lnc=given.pop("lnc"))
            seconds = given.pop("timeout")
            try:
                seconds = self._seconds if seconds is None else min(seconds, self._seconds)
                if not seconds > 0:
                    raise _refused(f"limit on timeout: {seconds}; must be positive")
                with TemporaryDirectory(prefix="nki-dist-", ignore_cleanup_errors=True) as home:
                    words = [*tool(**given), *options]
                    if program:
                        words += self._program(Path(home), **values)
                    async with self._turns:
                        ended = await self._calls.call(words, Path(home), seconds)
            except NkiError as error:
                return {"ok": False, "error": error.to_dict()}
            # A name that is too long or has NUL, links in a circle, a full disk.
            except (OSError, ValueError, RuntimeError) as error:
                refusal = _refused(f"the call can't be made: {error}")
                return {"ok": False, "error": refusal.to_dict()}
            result = {"status": ended.status, "stderr": ended.said}
            if ended.over is not None:
                return {"ok": False, **result, "error": ended.over.to_dict()}
            result |= {"ok": ended.status == 0, "error": None}
            return result | _answer(tool.__name__, ended)

        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            for name, annotation in {**program, **_OF_ALL}.items()
        ]
        signature = inspect.Signature([*own.values(), *parameters])
        vars(served)["__signature__"] = signature.replace(return_annotation=dict[str, Any])
        served.__doc__ = tool.__doc__
        return served

    def check(self, policy: str | None = None) -> list[str]:
        """Mistakes of a program's kernels, found without running them; takes seconds.

        Args:
            program: a script below the server's folder.
            source: the text of a script, instead of `program`.
            arguments: of the program.
            platform: trn1, trn2 (default) or trn3.
            lnc: cores of kernels without a grid, 1 or 2.
            policy: what kernels are checked against, such as "strict" or
                "unwritten=zero,races=warn".
            timeout: seconds, at most the server's limit.

        Returns:
            `ok`; `report` with `kernels`, each with `diagnostics`; `stderr`; `error` or null.
        """
        return [*_COMMAND, "check", "--json", *_options(check=policy)]

    def run(self, policy: str | None = None) -> list[str]:
        """Run a program with its kernels, on simulated cores in one process.

        Args:
            program, source, arguments, platform, lnc, policy, timeout: as of `check`.

        Returns:
            `ok`: whether the exit status is 0; `status`; `stdout` and `stderr`, their ends;
            `diagnostics`: errors and warnings of the simulator; `error` or null.
        """
        return [*_COMMAND, "run", "--json-errors", *_options(check=policy)]

    def estimate(self) -> list[str]:
        """Simulated time of a program's kernels, without arithmetic.

        Args:
            program, source, arguments, platform, lnc, timeout: as of `check`.

        Returns:
            `ok`; `kernels`, each with `device_us` and its band `low_us` to `high_us`, in
            microseconds, and `launches`; `diagnostics`; `error` or null.
        """
        return ["-c", _ESTIMATE]

    def rank(self, programs: list[str]) -> list[str]:
        """Programs in the order of the simulated time of their kernels, the fastest first.

        Args:
            programs: scripts below the server's folder.
            platform, lnc, timeout: as of `check`.

        Returns:
            `ok`; `report` with `programs` (`device_us`, `low_us`, `high_us`, `group` of those that
            can't be told apart) and `failures`; `error` or null.
        """
        if not programs:
            raise _refused("programs is empty; name at least one")
        files = [self._file(name) for name in programs]
        return [*_COMMAND, "rank", "--json", "--no-cache", *files]

    def record(
        self,
        kernel: str | None = None,
        launch: int = 1,
        tensors: list[str] | None = None,
        output: str = "0",
        index: list[int] | None = None,
        expected: str | None = None,
    ) -> list[str]:
        """What happened inside a launch: the first number that isn't finite, writes, origins.

        Args:
            program, source, arguments, platform, lnc, timeout: as of `check`.
            kernel: only launches of this kernel.
            launch: which launch of each kernel, from 1 on.
            tensors: also what was written to these tensors, or from lines such as "softmax.py:12".
            output: of which output `index` is: its number or name.
            index: also where this element of the output came from.
            expected: a .npy file below the server's folder with what the output should be; then
                the origin says where it departs; without `index`, of what is farthest off.

        Returns:
            `ok`; `report`: for each kernel `first_non_finite`, `writes`, `origin`; `stderr`;
            `error` or null.
        """
        options = _options(
            kernel=kernel,
            launch=launch,
            output=output,
            index=index and ",".join(map(str, index)),
            expected=expected and self._file(expected),
        )
        options += [f"--tensor={name}" for name in tensors or ()]
        return [*_COMMAND, "record", "--json", *options]

    def report(self, html: str | None = None) -> list[str]:
        """Run a program, and say where the simulated time of its kernels goes.

        Args:
            program, source, arguments, platform, lnc, timeout: as of `check`.
            html: also write the report as a page to this file below the server's folder, which
                must not exist; of several kernels one page each, numbered.

        Returns:
            `ok`; `kernels`, each with times in microseconds, `critical` (what bounded it),
            `engines`, the costliest `lines` and `advice`; `stderr`; `error` or null.
        """
        page = html and self._below(html)
        if page and (page.exists() or page.suffix != ".html" or not page.parent.is_dir()):
            raise _refused(f"html={html}; must be a new file named *.html in a folder that exists")
        options = ["--advice", "--output-format", "json", *_options(html=page)]
        return [*_COMMAND, "profile", *options]

    # ---- files ----------------------------------------------------------------------------------

    def _program(
        self, home: Path, program: str | None, source: str | None, arguments: list[str] | None
    ) -> list[str]:
        """The program and its arguments, as a command takes them."""
        if (program is None) == (source is None):
            raise _refused("give either program or source")
        if program is not None:
            file = self._file(program)
        else:
            file = str(home / "program.py")
            Path(file).write_text(source or "", encoding="utf-8")
        return [file, *(arguments or ())]

    def _below(self, name: str) -> Path:
        path = (self._folder / name).resolve()
        if not path.is_relative_to(self._folder):
            raise _refused(f"{name} isn't below the server's folder")
        return path

    def _file(self, name: str) -> str:
        path = self._below(name)
        if not path.is_file():
            raise _refused(f"there is no file {name} in the server's folder")
        return str(path)


def _refused(message: str) -> LaunchError:
    return LaunchError(message, code="call-value")


def _options(**values: Any) -> list[str]:
    """Options that have a value; with `=`, so that no value is taken for an option."""
    return [f"--{name}={value}" for name, value in values.items() if value is not None]
