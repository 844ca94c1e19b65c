"""The tools of `nki-dist mcp`: what they take, the command behind each, and its answer as data."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nki_dist.cli.mcp import answers
from nki_dist.cli.mcp.calls import Ended, Limits, call
from nki_dist.errors import LaunchError, NkiError

_UNHELD: Final = re.compile("[\0\ud800-\udfff]")


_COMMAND: Final = ("-m", "nki_dist")

# Of all tools; those of a program come before the tool's own, the others after them.
_OF_A_PROGRAM: Final = {"program": str | None, "source": str | None, "arguments": list[str] | None}
_OF_ALL: Final = {"platform": str | None, "lnc": int | None, "timeout": float | None}


def _tool(
    answer: Callable[[Ended], dict[str, Any]], of_a_program: bool = True
) -> Callable[[Callable[..., Sequence[str]]], Callable[..., dict[str, Any]]]:
    """A tool, made of what gives its command: with the parameters that all have.

    Args:
        answer: what a call wrote, as data.
        of_a_program: it looks at one, which comes last in the command.
    """

    def decorate(words: Callable[..., Sequence[str]]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(words)
        def tool(
            self: Tools,
            *,
            timeout: float | None = None,
            _cancelled: Callable[[], bool] = lambda: False,
            **given: Any,
        ) -> dict[str, Any]:
            def command(home: Path) -> list[str]:
                options = _options(**{name: given.pop(name, None) for name in ("platform", "lnc")})
                program = {name: given.pop(name, None) for name in _OF_A_PROGRAM}
                asked = [*words(self, home, **given), *options]
                return asked + self._program(home, **program) if of_a_program else asked

            if unheld := _unheld(given):
                return _refused(unheld)
            return self._call(command, timeout, _cancelled, answer)

        signature = inspect.signature(words, eval_str=True)
        this, _, *theirs = signature.parameters.values()
        before = _parameters(_OF_A_PROGRAM) if of_a_program else []
        tool.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[this, *before, *theirs, *_parameters(_OF_ALL)],
            return_annotation=dict[str, Any],
        )
        return tool

    return decorate


def _parameters(named: Mapping[str, Any]) -> list[inspect.Parameter]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [
        inspect.Parameter(name, kind, default=None, annotation=of) for name, of in named.items()
    ]


def _unheld(given: Mapping[str, Any]) -> LaunchError | None:
    """The refusal of texts which no file, name or command can hold."""
    for name, value in given.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and (unheld := _UNHELD.search(text)):
                return LaunchError(
                    f"{name} has the character {unheld[0]!a} at {unheld.start()}; a text can't "
                    "hold NUL or half of a surrogate pair",
                    code="call-value",
                )
    return None


class Tools:
    """Run, check, time and look into kernels written for AWS's NKI, on simulated NeuronCores.

    A program is a Python script that imports nki (or neuronxcc.nki, or nki_dist) and launches
    kernels. Name a file below the server's folder (`program`), or pass the text (`source`). Begin
    with `check`; `estimate` and `rank` give simulated time without running kernels; `run` computes;
    `record` says where a number came from; `report` says where the time goes. Every result has
    `ok`; mistakes are data with `code`, `message`, `file`, `line` and `hint`.

    Args:
        folder: where programs run; files are named from here and lie below it.
        limits: of each call; a call may ask for less time.
    """

    NAMES: Final = ("check", "run", "estimate", "rank", "record", "report")

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder = folder
        self._limits = limits

    @_tool(answers.report)
    def check(self, home: Path, policy: str | None = None) -> list[str]:
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

    @_tool(answers.ran)
    def run(self, home: Path, policy: str | None = None) -> list[str]:
        """Run a program with its kernels, on simulated cores in one process.

        Args:
            program, source, arguments, platform, lnc, policy, timeout: as of `check`.

        Returns:
            `ok`: whether the exit status is 0; `status`; `stdout` and `stderr`, their ends;
            `diagnostics`: errors and warnings of the simulator; `error` or null.
        """
        return [*_COMMAND, "run", "--json-errors", *_options(check=policy)]

    @_tool(answers.estimated)
    def estimate(self, home: Path) -> list[str]:
        """Simulated time of a program's kernels, without arithmetic.

        Args:
            program, source, arguments, platform, lnc, timeout: as of `check`.

        Returns:
            `ok`; `kernels`, each with `device_us` and its band `low_us` to `high_us`, in
            microseconds, and `launches`; `diagnostics`; `error` or null.
        """
        return ["-c", _TIMED]

    @_tool(answers.report, of_a_program=False)
    def rank(self, home: Path, programs: list[str]) -> list[str]:
        """Programs in the order of the simulated time of their kernels, the fastest first.

        Args:
            programs: scripts below the server's folder.
            platform, lnc, timeout: as of `check`.

        Returns:
            `ok`; `report` with `programs` (`device_us`, `low_us`, `high_us`, `group` of those that
            can't be told apart) and `failures`; `error` or null.
        """
        if not programs:
            raise LaunchError("programs is empty; name at least one", code="call-value")
        files = [str(self._file(name)) for name in programs]
        return [*_COMMAND, "rank", "--json", "--no-cache", *files]

    @_tool(answers.report)
    def record(
        self,
        home: Path,
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
            index=None if index is None else ",".join(map(str, index)),
            expected=None if expected is None else self._file(expected),
        )
        options += [f"--tensor={name}" for name in tensors or ()]
        return [*_COMMAND, "record", "--json", *options]

    @_tool(answers.profiled)
    def report(self, home: Path, html: str | None = None) -> list[str]:
        """Run a program, and say where the simulated time of its kernels goes.

        Args:
            program, source, arguments, platform, lnc, timeout: as of `check`.
            html: also write the report as a page to this file below the server's folder, which
                must not exist; of several kernels one page each, numbered.

        Returns:
            `ok`; `kernels`, each with times in microseconds, `critical` (what bounded it),
            `engines`, the costliest `lines` and `advice`; `stderr`; `error` or null.
        """
        page = _options(html=None if html is None else self._new_file(html))
        return [*_COMMAND, "profile", "--advice", "--output-format", "json", *page]

    # ---- files ----------------------------------------------------------------------------------

    def _program(
        self, home: Path, program: str | None, source: str | None, arguments: Sequence[str] | None
    ) -> list[str]:
        """The program and its arguments, as a command takes them."""
        if (program is None) == (source is None):
            raise LaunchError("give either program or source", code="call-value")
        if source is None:
            assert program is not None
            file = self._file(program)
        else:
            file = home / "program.py"
            file.write_text(source, encoding="utf-8")
        return [str(file), *(arguments or ())]

    def _below(self, name: str) -> Path:
        try:
            path = (self._folder / name).resolve()
        except RuntimeError as error:  # links that go round
            raise LaunchError(f"{name}: {error}", code="call-value") from error
        if not path.is_relative_to(self._folder):
            raise LaunchError(f"{name} isn't below the server's folder", code="call-value")
        return path

    def _file(self, name: str) -> Path:
        path = self._below(name)
        if not path.is_file():
            raise LaunchError(f"there is no file {name} in the server's folder", code="call-value")
        return path

    def _new_file(self, name: str) -> Path:
        path = self._below(name)
        if path.exists() or path.suffix != ".html" or not path.parent.is_dir():
            raise LaunchError(
                f"html={name}; must be a new file named *.html in a folder that exists",
                code="call-value",
            )
        return path

    # ---- calls ----------------------------------------------------------------------------------

    def _call(
        self,
        command: Callable[[Path], list[str]],
        timeout: float | None,
        cancelled: Callable[[], bool],
        answer: Callable[[Ended], dict[str, Any]],
    ) -> dict[str, Any]:
        try:
            limits = self._limits
            if timeout is not None:
                limits = replace(limits, seconds=min(timeout, limits.seconds))
            ended = call(command, self._folder, limits, cancelled)
        except NkiError as error:
            return _refused(error)
        except OSError as error:  # a name that is too long, arguments that are, a full disk
            return _refused(LaunchError(f"the call can't be made: {error}", code="call-value"))
        if ended.over is not None:
            return {"ok": False, "stderr": ended.said, "error": ended.over.to_dict()}
        return {"error": None, **answer(ended)}


def _refused(error: NkiError) -> dict[str, Any]:
    """The answer to a call that isn't made."""
    return {"ok": False, "error": error.to_dict()}


_TIMED: Final = """
import json, sys
from nki_dist.cli import check
from nki_dist.cli.shared.timed import timed
with check.printing_to_stderr():
    found = timed(sys.argv[1:])
print(json.dumps(found))
"""


def _options(**values: Any) -> list[str]:
    """Options that have a value; with `=`, so that no value is taken for an option."""
    return [f"--{name}={value}" for name, value in values.items() if value is not None]
