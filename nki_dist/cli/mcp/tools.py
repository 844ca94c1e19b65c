"""The tools of `nki-dist mcp`: what they take, the command behind each, and its answer as data."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nki_dist.cli.mcp import answers
from nki_dist.cli.mcp.calls import Ended, Limits, call
from nki_dist.errors import LaunchError, NkiError

_UNHELD: Final = re.compile("[\0\ud800-\udfff]")


def _never() -> bool:
    return False


def _tool(carried_out: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """A tool that refuses texts which no file, name or command can hold."""

    @functools.wraps(carried_out)
    def checked(*given: Any, **named: Any) -> dict[str, Any]:
        bound = inspect.signature(carried_out).bind(*given, **named).arguments
        for name, value in bound.items():
            for text in value if isinstance(value, list) else [value]:
                if isinstance(text, str) and (unheld := _UNHELD.search(text)):
                    return _refused(
                        LaunchError(
                            f"{name} has the character {unheld[0]!a} at {unheld.start()}; a text "
                            "can't hold NUL or half of a surrogate pair",
                            code="call-value",
                        )
                    )
        return carried_out(*given, **named)

    return checked


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

    @_tool
    def check(
        self,
        program: str | None = None,
        source: str | None = None,
        arguments: list[str] | None = None,
        platform: str | None = None,
        lnc: int | None = None,
        policy: str | None = None,
        timeout: float | None = None,
        _cancelled: Callable[[], bool] = _never,
    ) -> dict[str, Any]:
        """Mistakes of a program's kernels, found without running them; takes seconds.

        Args:
            program: a script below the server's folder.
            source: the text of a script, instead of `program`.
            arguments: of the program.
            platform: trn1, trn2 (default) or trn3.
            lnc: cores of kernels without a grid, 1 or 2.
            policy: what kernels are held to, such as "strict" or "unwritten=zero,races=warn".
            timeout: seconds, at most the server's limit.

        Returns:
            `ok`; `report` with `kernels`, each with `diagnostics`; `stderr`; `error` or null.
        """

        def command(own: Path) -> list[str]:
            options = _options(platform=platform, lnc=lnc, check=policy)
            return ["check", "--json", *options, *self._program(own, program, source, arguments)]

        return self._call(_command(command), timeout, _cancelled, answers.report)

    @_tool
    def run(
        self,
        program: str | None = None,
        source: str | None = None,
        arguments: list[str] | None = None,
        platform: str | None = None,
        lnc: int | None = None,
        policy: str | None = None,
        timeout: float | None = None,
        _cancelled: Callable[[], bool] = _never,
    ) -> dict[str, Any]:
        """Run a program with its kernels, on simulated cores in one process.

        Args:
            program, source, arguments, platform, lnc, policy, timeout: as of `check`.

        Returns:
            `ok`: whether the exit status is 0; `status`; `stdout` and `stderr`, their ends;
            `diagnostics`: errors and warnings of the simulator; `error` or null.
        """

        def command(own: Path) -> list[str]:
            options = _options(platform=platform, lnc=lnc, check=policy)
            rest = self._program(own, program, source, arguments)
            return ["run", "--json-errors", *options, *rest]

        return self._call(_command(command), timeout, _cancelled, answers.ran)

    @_tool
    def estimate(
        self,
        program: str | None = None,
        source: str | None = None,
        arguments: list[str] | None = None,
        platform: str | None = None,
        lnc: int | None = None,
        timeout: float | None = None,
        _cancelled: Callable[[], bool] = _never,
    ) -> dict[str, Any]:
        """Simulated time of a program's kernels, without arithmetic.

        Args:
            program, source, arguments, platform, lnc, timeout: as of `check`.

        Returns:
            `ok`; `kernels`, each with `device_us` and its band `low_us` to `high_us`, in
            microseconds, and `launches`; `diagnostics`; `error` or null.
        """

        def command(own: Path) -> list[str]:
            answer = str(own / "report.json")
            options = _options(platform=platform, lnc=lnc)
            rest = self._program(own, program, source, arguments)
            return ["-c", _TIMED, answer, *options, *rest]

        return self._call(command, timeout, _cancelled, answers.estimated)

    @_tool
    def rank(
        self,
        programs: list[str],
        platform: str | None = None,
        lnc: int | None = None,
        timeout: float | None = None,
        _cancelled: Callable[[], bool] = _never,
    ) -> dict[str, Any]:
        """Programs in the order of the simulated time of their kernels, the fastest first.

        Args:
            programs: scripts below the server's folder.
            platform, lnc, timeout: as of `check`.

        Returns:
            `ok`; `report` with `programs` (`device_us`, `low_us`, `high_us`, `within_noise`) and
            `failures`; `error` or null.
        """

        def command(own: Path) -> list[str]:
            if not programs:
                raise LaunchError("programs is empty; name at least one", code="call-value")
            files = [str(self._file(name)) for name in programs]
            return ["rank", "--json", "--no-cache", *_options(platform=platform, lnc=lnc), *files]

        return self._call(_command(command), timeout, _cancelled, answers.report)

    @_tool
    def record(
        self,
        program: str | None = None,
        source: str | None = None,
        arguments: list[str] | None = None,
        kernel: str | None = None,
        launch: int = 1,
        tensors: list[str] | None = None,
        output: str = "0",
        index: list[int] | None = None,
        expected: str | None = None,
        platform: str | None = None,
        lnc: int | None = None,
        timeout: float | None = None,
        _cancelled: Callable[[], bool] = _never,
    ) -> dict[str, Any]:
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

        def command(own: Path) -> list[str]:
            options = _options(
                platform=platform,
                lnc=lnc,
                kernel=kernel,
                launch=launch,
                output=output,
                index=None if index is None else ",".join(map(str, index)),
                expected=None if expected is None else self._file(expected),
            )
            options += [f"--tensor={name}" for name in tensors or ()]
            return ["record", "--json", *options, *self._program(own, program, source, arguments)]

        return self._call(_command(command), timeout, _cancelled, answers.report)

    @_tool
    def report(
        self,
        program: str | None = None,
        source: str | None = None,
        arguments: list[str] | None = None,
        html: str | None = None,
        platform: str | None = None,
        lnc: int | None = None,
        timeout: float | None = None,
        _cancelled: Callable[[], bool] = _never,
    ) -> dict[str, Any]:
        """Run a program, and say where the simulated time of its kernels goes.

        Args:
            program, source, arguments, platform, lnc, timeout: as of `check`.
            html: also write the report as a page to this file below the server's folder, which
                must not exist; of several kernels one page each, numbered.

        Returns:
            `ok`; `kernels`, each with times in microseconds, `critical` (what bounded it),
            `engines`, the costliest `lines` and `advice`; `stderr`; `error` or null.
        """

        def command(own: Path) -> list[str]:
            options = _options(platform=platform, lnc=lnc)
            if html is not None:
                options.append(f"--html={self._new_file(html)}")
            rest = self._program(own, program, source, arguments)
            return ["profile", "--advice", "--output-format", "json", *options, *rest]

        return self._call(_command(command), timeout, _cancelled, answers.profiled)

    # ---- files ----------------------------------------------------------------------------------

    def _program(
        self, own: Path, program: str | None, source: str | None, arguments: Sequence[str] | None
    ) -> list[str]:
        """The program and its arguments, as a command takes them."""
        if (program is None) == (source is None):
            raise LaunchError("give either program or source", code="call-value")
        if source is None:
            assert program is not None
            file = self._file(program)
        else:
            file = own / "program.py"
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


# Timed by what `nki-dist rank` starts for each program; its report is this command's answer.
_TIMED: Final = """
import sys
from pathlib import Path
from nki_dist.cli import check
from nki_dist.cli.shared import timed
given = sys.argv[1:]  # the program gets others
with check.printing_to_stderr():
    status = timed.main(given)
print(Path(given[0]).read_text("utf-8"))
sys.exit(status)
"""


def _command(arguments: Callable[[Path], list[str]]) -> Callable[[Path], list[str]]:
    """A command of `nki-dist`."""
    return lambda own: ["-m", "nki_dist", *arguments(own)]


def _options(**values: Any) -> list[str]:
    """Options that have a value; with `=`, so that no value is taken for an option."""
    return [f"--{name}={value}" for name, value in values.items() if value is not None]
