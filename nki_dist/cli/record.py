"""`nki-dist record`: what happened inside the launches of a program.

Run a program as `nki-dist run` does, and ask launches of its kernels what happened inside: the
first number that isn't finite, always; what was written to a tensor or from a line (--tensor);
where an element of an output came from (--index, --output), and where an output departs from a
reference (--expected). The program's results, errors and exit status stay its own; a question takes
about as long as the launch.

[options]

--json prints the answers on stdout and nothing else; what the program prints goes to stderr.
docs/records.md says what the answers mean.

examples:
  nki-dist record softmax.py
  nki-dist record --tensor total --kernel softmax --launch 3 train.py --steps 5
  nki-dist record --output 0 --index 50,7 softmax.py
  nki-dist record --expected want.npy softmax.py
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nki_dist.cli.shared import queries
from nki_dist.cli.shared.command import add_command, check_positive, refused
from nki_dist.errors import LaunchError, plain
from nki_dist.insight.record import Record
from nki_dist.insight.steps import At, NonFinite, Origin, Source, Writes

_VALUES: Final = 64  # of a write, in JSON
_APART: Final = ("values", "reads", "elements", "shape", "dtype")  # what isn't told as it is


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "record", "ask what happened inside a program's launches", __doc__, run
    )
    parser.add_argument(
        "--tensor",
        action="append",
        default=[],
        metavar="NAME",
        help="also show what was written to a tensor, or from a line such as softmax.py:12",
    )
    parser.add_argument(
        "--output",
        default="0",
        metavar="N",
        help="of which output --index is (default 0), or its name",
    )
    parser.add_argument(
        "--index", metavar="I,J", help="also show where this element of an output came from"
    )
    parser.add_argument(
        "--expected",
        metavar="FILE",
        help="a .npy file with what the output should be; without --index, the element that is "
        "farthest off is asked about",
    )
    parser.add_argument("--core", type=int, metavar="N", help="only writes of this core of a rank")
    parser.add_argument(
        "--rank", type=int, metavar="N", help="only writes of this rank; whose output (default 0)"
    )
    parser.add_argument(
        "--max-size",
        type=float,
        default=8.0,
        metavar="MIB",
        help="of the file that --html names; pictures become samples where they don't fit "
        "(default 8)",
    )
    queries.add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the program, then print; a SystemExit of the program goes through.

    Raises:
        LaunchError: wrong options.
    """
    expected = expected_of(arguments)
    check_positive(arguments, "max_size")
    output = int(arguments.output) if arguments.output.isdigit() else arguments.output
    index, core, rank = _index(arguments.index), arguments.core, arguments.rank

    def ask(record: Record) -> list[Any]:
        found: list[Any] = [record, record.first_non_finite() or "every number is finite"]
        found += [record.writes(name, core=core, rank=rank) for name in arguments.tensor]
        if index is not None or expected is not None:
            found.append(record.origin(output, index, rank=rank or 0, expected=expected))
        return found

    def page(answers: Sequence[Any]) -> str:
        record: Record = answers[0]
        each = of_rank(record, {output: expected}, rank) if expected is not None else None
        size = int(arguments.max_size * (1 << 20))
        return record.report(each, size, notes=[str(answer) for answer in answers])

    return queries.answer_queries(arguments, ask, _data, page)


def of_rank(record: Record, expected: Any, rank: int | None) -> Any:
    """What is expected of one rank, as records take it."""
    ranks = record.launched.slots[0].ranks
    return [expected if n == (rank or 0) else None for n in range(ranks)]


def _index(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(n) for n in text.split(",") if n.strip())
    except ValueError:
        raise refused(
            f"--index {text}; must be numbers with commas between them, such as 50,7",
        ) from None


def expected_of(arguments: argparse.Namespace) -> np.ndarray | None:
    """What `--expected` names, or None.

    Raises:
        LaunchError: the file can't be read.
    """
    file = arguments.expected
    if file is None:
        return None
    try:
        return np.asarray(np.load(file, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise LaunchError(
            f"--expected {file} can't be read: {error}",
            code="command-option",
            hint="np.save(FILE, array) writes such a file",
        ) from error


# ---- as data ------------------------------------------------------------------------------------


def _data(answers: Sequence[Any]) -> dict[str, Any]:
    record, first, *rest = answers
    slots = record.launched.slots
    return {
        "ranks": slots[0].ranks,
        "cores": slots[0].cores,
        "instructions": sum(r.done for r in record.reports),
        "first_non_finite": _at(first) if isinstance(first, NonFinite) else None,
        "writes": [[_at(w) for w in ws] for ws in rest if isinstance(ws, Writes)],
        "origin": next((_origin(o) for o in rest if isinstance(o, Origin)), None),
    }


def _at(at: At) -> dict[str, Any]:
    found = {name: value for name, value in vars(at).items() if name not in _APART}
    values = getattr(at, "values", None)
    if values is not None:
        some = np.asarray(values).reshape(-1)[:_VALUES]
        found |= {"shape": values.shape, "dtype": str(values.dtype), "values": some}
    if hasattr(at, "reads"):
        found["reads"] = sorted({r.step for r in at.reads if not isinstance(r, Source)})
    return dict(plain(found))


def _origin(origin: Origin) -> dict[str, Any]:
    told = [{k: v for k, v in vars(s).items() if k not in _APART} for s in origin.sources]
    sources = [{**t, "values": s.values[:_VALUES]} for t, s in zip(told, origin.sources)]
    return {
        "what": origin.what,
        "value": plain(origin.value),
        "why": origin.why,
        "complete": origin.complete,
        "steps": [_at(s) for s in origin],
        "sources": plain(sources),
        "expected": plain([vars(e) for e in origin.expected]),
    }
