"""What a wheel and a source distribution hold, against what they have to.

The rule is about the working tree, not about a list kept by hand: whatever lies in `nki_dist` and
isn't made by Python belongs in the wheel, and whatever git has belongs in the source distribution.
So a page, a script or a style sheet that `package-data` forgets is found when it is added.
"""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

LARGEST: Final = {"wheel": 2_000_000, "source distribution": 4_000_000}
"""Bytes: about twice what they are, so that a data set by accident is noticed."""

_ONLY_IN_GIT: Final = {".gitignore"}


def review_wheel(wheel: Path, package: Path) -> list[str]:
    """What is wrong with a wheel, a sentence each.

    Args:
        wheel: the file.
        package: the folder `nki_dist` it was made from.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    wanted = {f"nki_dist/{name}" for name in files_below(package)}
    wrong = _compare("wheel", wanted, names - about)
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in about):
        wrong.append("the wheel has no LICENSE")
    return wrong + _too_large("wheel", wheel)


def review_source(source: Path, tree: Path) -> list[str]:
    """What is wrong with a source distribution, a sentence each.

    Args:
        source: the file.
        tree: the working tree, which git knows.
    """
    with tarfile.open(source) as archive:
        names = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    made = {"PKG-INFO", "setup.cfg"}
    names = {n for n in names if n not in made and ".egg-info/" not in n}
    wrong = _compare("source distribution", tracked(tree) - _ONLY_IN_GIT, names)
    return wrong + _too_large("source distribution", source)


def files_below(package: Path) -> set[str]:
    """Paths of a package's files, from its folder; without what Python makes."""
    files = (path for path in package.rglob("*") if path.is_file())
    return {f.relative_to(package).as_posix() for f in files if "__pycache__" not in f.parts}


def tracked(tree: Path) -> set[str]:
    """Paths of the files that git has or would take."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=tree, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name for name in listed.stdout.split("\0") if name and (tree / name).is_file()}


def _compare(kind: str, wanted: Iterable[str], found: Iterable[str]) -> list[str]:
    wanted, found = set(wanted), set(found)
    missing = [f"the {kind} lacks {name}" for name in sorted(wanted - found)]
    return missing + [f"the {kind} has {name}" for name in sorted(found - wanted)]


def _too_large(kind: str, file: Path) -> list[str]:
    size = file.stat().st_size
    if size <= LARGEST[kind]:
        return []
    return [f"the {kind} has {size:,} bytes; at most {LARGEST[kind]:,} are expected"]
