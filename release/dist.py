"""`make dist`: a source distribution and a wheel, reviewed, and tested in a clean environment.

    python -m release.dist [--python 3.11] [TESTS ...]

The wheel is made from the source distribution, so what that lacks is missed here. Both are left in
`dist`. TESTS are paths or options for pytest; the fast tests by default.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from release.clean import Clean
from release.contents import files_below, review_source, review_wheel

ROOT: Final = Path(__file__).parents[1]
UV: Final = str(Path(sys.executable).with_name("uv"))


def build(folder: Path) -> tuple[Path, Path]:
    """Both distributions, in a folder from which older ones are removed.

    Returns:
        The source distribution and the wheel.
    """
    for old in (*folder.glob("nki_dist-*.tar.gz"), *folder.glob("nki_dist-*.whl")):
        old.unlink()
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    (source,), (wheel,) = folder.glob("nki_dist-*.tar.gz"), folder.glob("nki_dist-*.whl")
    return source, wheel


def main(argv: Sequence[str]) -> int:
    """Build, review, test."""
    parser = argparse.ArgumentParser("python -m release.dist", description=__doc__)
    parser.add_argument("--python", default=f"{sys.version_info[0]}.{sys.version_info[1]}")
    arguments, tests = parser.parse_known_args(argv)
    source, wheel = build(ROOT / "dist")
    for file in (source, wheel):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    print(f"the wheel holds the {len(files_below(ROOT / 'nki_dist'))} files of nki_dist")
    wrong = review_source(source, ROOT) + review_wheel(wheel, ROOT / "nki_dist")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="nki_dist_clean_") as folder:
        clean = Clean(Path(folder).resolve(), UV)
        clean.install(arguments.python, wheel, ["test"])
        clean.unpack(source)
        status, said = clean.test(tests)
        if status:
            print(clean.log.read_text("utf-8"), file=sys.stderr)
    print(f"clean environment, Python {clean.version}: {said}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
