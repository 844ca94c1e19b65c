"""`nki-dist drift`: where the kernels of a program lose precision.

Run a program as `nki-dist run` does, and carry launches of its kernels out beside themselves in
float64: the error that each kernel line added, the line that added most first. The program's
results, errors and exit status stay its own.

With --tolerance, the exit status is 1 if a line of a launch added more than that, or made a number
infinite or NaN that isn't: for tests and CI.

[options]

--json prints the answers on stdout and nothing else; what the program prints goes to stderr.
docs/records.md says what the numbers mean.

examples:
  nki-dist drift layer_norm.py
  nki-dist drift --tolerance 1e-2 --launch all --json train.py --steps 1
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from nki_dist.cli.shared import queries
from nki_dist.cli.shared.command import add_command, refused
from nki_dist.errors import plain
from nki_dist.insight.drift import Drift, Shadows
from nki_dist.insight.record import Record


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "drift", "show which kernel lines of a program lose precision", __doc__, run
    )
    parser.add_argument(
        "--tolerance", type=float, metavar="X", help="exit with 1 if a line added more than this"
    )
    queries.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, then print; a SystemExit of the program goes through.

    Raises:
        LaunchError: wrong options.
    """
    tolerance = arguments.tolerance
    if tolerance is not None and not tolerance >= 0:
        raise refused(f"--tolerance {tolerance:g}; must not be negative")
    worse: list[Any] = []

    def ask(record: Record) -> list[Any]:
        kernel = record.launched.compiled.kernel
        drift = Drift(None, kernel, Shadows(record.launched).lines())
        if tolerance is None:
            return [drift]
        over = [line for line in drift.lines if line.not_finite or line.added > tolerance]
        worse.extend(over)
        count = "no line" if not over else "1 line" if len(over) == 1 else f"{len(over)} lines"
        return [drift, f"{count} added more than {tolerance:g}"]

    return queries.answer_queries(arguments, ask, _data) or (1 if worse else 0)


def _data(answers: Sequence[Any]) -> dict[str, Any]:
    drift: Drift = answers[0]
    return {"lines": [plain(vars(line)) for line in drift.lines]}
