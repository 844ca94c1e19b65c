"""`python -m bench`: run all measurements and print a Markdown table."""

from __future__ import annotations

import os
import platform

from bench import spine


def main() -> None:
    print(f"{os.cpu_count()} processors, Python {platform.python_version()}, medians of 5\n")
    print("| measurement | result | goal |\n|---|---|---|")
    for name, result, goal in spine.rows():
        print(f"| {name} | {result} | {goal} |", flush=True)


if __name__ == "__main__":
    main()
