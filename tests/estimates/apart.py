"""`nki-dist` in a process of its own: rank and calibrate fork, which one with Ray must not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    """The exit status; what it prints is printed."""
    ran = subprocess.run([sys.executable, "-m", "nki_dist", *words], capture_output=True, text=True)
    print(ran.stdout, end="")
    print(ran.stderr, end="", file=sys.stderr)
    return ran.returncode
