"""What all commands have: a parser, whose help is the docstring of their module, and refusals."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from nki_dist.errors import LaunchError


def add_command(
    subparsers: Any,
    name: str,
    purpose: str,
    doc: str | None,
    run: Callable[[argparse.Namespace], int] | None = None,
    **values: object,
) -> Any:
    """Add a command; returns its parser.

    Args:
        purpose: its line in the list of commands.
        doc: its module's docstring: a paragraph for readers of the code, what `--help` says above
            the options, `[options]`, and what it says below them.
        run: from parsed arguments to an exit status; None if it has actions, which have their own.
        values: what stands in braces in `doc`.
    """
    said = (doc or "").partition("\n\n")[2].strip()
    above, _, below = (said.format(**values) if values else said).partition("\n\n[options]\n\n")
    parser = subparsers.add_parser(
        name,
        help=purpose,
        description=above or None,
        epilog=below or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)
    return parser


def add_platform(parser: argparse.ArgumentParser) -> None:
    """The options that say what kernels are for, and what they are checked against."""
    parser.add_argument("--platform", metavar="NAME", help="trn1, trn2 or trn3")
    parser.add_argument("--lnc", type=int, metavar="N", help="cores of kernels without a grid")
    parser.add_argument(
        "--check", metavar="POLICY", help="what kernels are checked against, as of World"
    )


def check_positive(arguments: argparse.Namespace, *names: str) -> None:
    """Refuse options that aren't positive numbers; None is none.

    Raises:
        LaunchError: one isn't.
    """
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not 0 < value < math.inf:
            raise refused(f"--{name.replace('_', '-')} {value:g}; must be positive", got=value)


def refused(text: str, **numbers: float) -> LaunchError:
    """What is said of options that can't be carried out."""
    return LaunchError(text, code="command-option", numbers=numbers or None)
