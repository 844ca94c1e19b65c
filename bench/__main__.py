"""`python -m bench`: run all measurements and print a Markdown table."""

from __future__ import annotations

import os
import platform

from bench import spine
from bench.harness import show


def main() -> None:
    print(f"{os.cpu_count()} processors, Python {platform.python_version()}, medians of 5\n")
    show(("measurement", "result", "goal"), spine.rows())


if __name__ == "__main__":
    main()
