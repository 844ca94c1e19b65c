"""A clean environment: an interpreter, the wheel, its dependencies, and the tests beside it.

The tests, pages and examples come out of the source distribution, into a folder outside the
checkout. Its `nki_dist` is replaced by a link to the installed package, because some tests read
sources; programs import it from `site-packages`, since pytest appends to the path and no
`PYTHONPATH` is left. Before the tests run, the interpreter says where its `nki_dist` is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement

# uv reads these, and each row of the matrix says them itself.
_OURS: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "UV_PYTHON", "UV_RESOLUTION")

_SPREAD: Final = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")  # as in the Makefile

_WHERE: Final = """
import importlib.metadata as m, json, nki_dist, sys
names = "ray numpy ml_dtypes msgpack scipy threadpoolctl plotly torch jax mcp".split()
found = {}
for name in names:
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps({"file": nki_dist.__file__, "version": nki_dist.__version__,
                  "told": m.version("nki_dist"), "python": sys.version.split()[0],
                  "packages": found}))
"""


class Clean:
    """An environment in a folder of its own.

    Args:
        folder: where to make it; must be outside the checkout and empty.
        uv: the program that makes it.
    """

    def __init__(self, folder: Path, uv: str) -> None:
        self.folder = folder
        self._uv = uv
        self.python = folder / "env" / "bin" / "python"
        self.tree = folder / "tree"
        self.log = folder / "pytest.txt"
        self.packages: dict[str, str] = {}
        self.version = ""

    def install(
        self, python: str, wheel: Path, extras: Sequence[str], lowest: bool = False
    ) -> None:
        """Make it.

        Args:
            python: a version, or an interpreter's path; uv finds it, or downloads it.
            wheel: of this project.
            extras: of the wheel, such as `test`.
            lowest: the lowest allowed versions of what the wheel asks for, not the highest.
                What these ask for themselves is as high as can be.

        Raises:
            CalledProcessError: there is no such interpreter, or no set of versions.
        """
        self._run(self._uv, "venv", "--quiet", "--python", python, str(self.folder / "env"))
        asked = [f"nki_dist @ {wheel.resolve().as_uri()}", *requirements(wheel, extras)]
        resolution = "lowest-direct" if lowest else "highest"
        self._run(
            self._uv, "pip", "install", "--quiet", "--python", str(self.python),
            "--no-build", "--resolution", resolution, *asked,
        )  # fmt: skip

    def unpack(self, source: Path) -> None:
        """The tests' tree, whose `nki_dist` is the installed one.

        Raises:
            RuntimeError: the interpreter imports another nki_dist, or versions disagree.
        """
        with tarfile.open(source) as archive:
            archive.extractall(self.folder / "unpacked", filter="data")
        (unpacked,) = (self.folder / "unpacked").iterdir()
        unpacked.rename(self.tree)
        shutil.rmtree(self.tree / "nki_dist")
        told = json.loads(self._run(str(self.python), "-c", _WHERE).stdout)
        installed = Path(told["file"]).parent
        if self.folder / "env" not in installed.parents:
            raise RuntimeError(f"nki_dist is imported from {installed}, not from {self.folder}")
        if told["version"] != told["told"]:
            raise RuntimeError(f"__version__ is {told['version']}, the wheel is {told['told']}")
        (self.tree / "nki_dist").symlink_to(installed)
        self.packages, self.version = told["packages"], told["python"]

    def test(self, tests: Sequence[str]) -> tuple[int, str]:
        """Run tests in two processes; pytest's exit status and its last line.

        `--import-mode=append` keeps the tree's folders behind `site-packages`.
        """
        command = [str(self.python.with_name("pytest")), "-q", "-p", "no:cacheprovider"]
        with self.log.open("w", encoding="utf-8") as out:
            done = subprocess.run(
                [*command, *_SPREAD, "--import-mode=append", *tests],
                cwd=self.tree, env=_environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                check=False,
            )  # fmt: skip
        lines = self.log.read_text("utf-8").strip().splitlines()
        said = lines[-1] if lines else "nothing"
        if done.returncode not in (0, 1):  # interrupted, wrong usage, or killed: no summary
            said = f"pytest ended with status {done.returncode}, last: {said}"
        return done.returncode, said

    def _run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=self.folder, env=_environment(), stdout=subprocess.PIPE, text=True,
            check=True,
        )  # fmt: skip


def requirements(wheel: Path, extras: Sequence[str]) -> list[str]:
    """What a wheel asks for, so that `lowest-direct` sees it as asked for directly."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    found = []
    for line in (Parser().parsestr(text).get_all("Requires-Dist")) or []:
        asked = Requirement(line)
        if asked.marker is None or any(asked.marker.evaluate({"extra": e}) for e in extras):
            asked.marker = None
            found.append(str(asked))
    return found


def _environment() -> dict[str, str]:
    """This process's, without what leads back to the checkout or bends the rules of a row."""
    kept = {name: value for name, value in os.environ.items() if name not in _OURS}
    return {"OPENBLAS_NUM_THREADS": "1", **kept}
