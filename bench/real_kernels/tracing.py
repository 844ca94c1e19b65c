"""Launches of a checkout's programs that are traced instead of made, for `foreign`.

`nki-dist check`'s Checker takes their place: no arithmetic, results of zeros. What it finds of each
launch is a line of JSON in the file that TRACE_VARIABLE names, written at once, so that a program
that is ended by its time limit has said what it launched until then.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest import mock

from bench.real_kernels.rules import Place, Watch
from nki_dist.errors import NkiWarning
from nki_dist.launcher.checking import Checker, Look
from nki_dist.launcher.session import CompileCache, session
from tests.foreign import constructs

TRACE_VARIABLE = "REAL_KERNELS_TRACE"
PLACES_VARIABLE = "REAL_KERNELS_PLACES"  # a file of the places of rules that are watched
ONE_VARIABLE = "REAL_KERNELS_ONE"  # a test ends with its first launch


class Traced(BaseException):
    """Ends a program whose only launch has been looked at; what it would compute isn't wanted."""


class Tracer(Checker):
    """Writes down what each launch came to."""

    def __init__(self, to: Path) -> None:
        super().__init__()
        self.to = to
        self.written: dict[int, int] = {}  # of each kernel's diagnostics
        self.known: set[str] = set()
        self.new: dict[str, str] = {}
        self.met: set[Place] = set()
        self.watch = Watch([])
        if PLACES_VARIABLE in os.environ:
            rows = json.loads(Path(os.environ[PLACES_VARIABLE]).read_text())
            self.watch = Watch([Place(*row) for row in rows])
            self.watch.start()
        mock.patch.object(CompileCache, "get", self._watched_get(CompileCache.get)).start()

    def launch(self, world: Any, kernel: Any, grid: Any, args: Any, kwargs: Any) -> Look:
        look = super().launch(world, kernel, grid, args, kwargs)
        self._write(look, world)
        if os.environ.get(ONE_VARIABLE):
            raise ended()
        return look

    def refused(self, kernel: Any, error: Any) -> Any:
        result = super().refused(kernel, error)
        self._write(Look(self, None, kernel), None)
        return result

    def _write(self, look: Look, world: Any) -> None:
        entry = look.entry
        known = self.written.get(id(entry), 0)
        found, self.written[id(entry)] = entry.diagnostics[known:], len(entry.diagnostics)
        row = {
            "program": os.environ.get("REAL_KERNELS_FILE", ""),
            "kernel": [entry.file or "", entry.line or 0, entry.name],
            "platform": world.arch.name if world is not None else "",
            "traced": look.launched() is not None,
            "ok": entry.ok,
            "found": [
                d.to_dict() | {"severity": "warning" if isinstance(d, NkiWarning) else "error"}
                for d in found
            ],
            "unchecked": sorted({why for _, why in entry.unchecked}),
            "constructs": self._constructs(),
            "met": self._met(),
        }
        with self.to.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _watched_get(self, get: Any) -> Any:
        def watched(cache: Any, *args: Any) -> Any:
            name, compiled = get(cache, *args)
            for text, where in constructs.of(compiled).items():
                if text not in self.known:
                    self.known.add(text)
                    self.new[text] = where
            return name, compiled

        return watched

    def _constructs(self) -> dict[str, str]:
        new, self.new = self.new, {}
        return new

    def _met(self) -> list[Any]:
        new = self.watch.met - self.met
        self.met |= new
        return sorted(new)


def ended() -> BaseException:
    """What ends a test, or a program."""
    if "PYTEST_CURRENT_TEST" in os.environ:
        import pytest

        return pytest.skip.Exception("traced")
    return Traced()


def install() -> bool:
    """Where TRACE_VARIABLE asks for it; whether it does."""
    path = os.environ.get(TRACE_VARIABLE)
    if path and session().checker is None:
        session().checker = Tracer(Path(path))
    return bool(path)
