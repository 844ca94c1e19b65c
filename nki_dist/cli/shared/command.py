"""A command's parser, whose help is the docstring of the command's module."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


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
