"""`nki-dist migrate`: programs of older releases of NKI, rewritten where one answer is right.

Rewrite programs for Beta 1 (neuronxcc.nki) or NKI 0.6 as programs for NKI 0.6 or 0.7, where there
is one right answer, and list what a person has to decide, with the line and the page of AWS's
documentation. Results stay the same: what the text doesn't say enough about isn't touched. A
kernel of Beta 1 is rewritten as a whole or not at all.

[options]

Exit status: 0; with --check 1 if a file would change.

examples:
  nki-dist migrate kernels/*.py
  nki-dist migrate --to 0.6 --write kernel.py
"""

from __future__ import annotations

import argparse
import difflib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nki_dist.cli.shared.command import add_command, refused


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "migrate", "rewrite programs for a newer release of NKI", __doc__, run
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="Python files")
    parser.add_argument(
        "--to", choices=("0.6", "0.7"), default="0.7", help="the release (default 0.7)"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--diff", action="store_true", help="show what would change (the default)")
    how.add_argument("--write", action="store_true", help="change the files")
    how.add_argument("--check", action="store_true", help="exit 1 if a file would change")
    parser.add_argument("--json", action="store_true", help="the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Migrate the files.

    Raises:
        LaunchError: a file can't be read as Python.
    """
    from nki_dist.migrate import migrate
    from nki_dist.migrate.rules import PAGES

    reports = []
    for name in arguments.files:
        try:
            with open(name, encoding="utf-8", newline="") as file:
                done = migrate(file.read(), arguments.to)
        except (OSError, UnicodeDecodeError, SyntaxError) as error:
            raise refused(
                f"{name} can't be migrated: {error}; name a file with Python of this version",
            ) from error
        reports.append(done.to_dict(name))
        if arguments.write and done.changed:
            Path(name).write_text(done.text, encoding="utf-8", newline="")
        if not arguments.json:
            _show(name, done, arguments, PAGES)
    if arguments.json:
        print(json.dumps({"to": arguments.to, "files": reports}, indent=2))
    return int(arguments.check and any(report["changed"] for report in reports))


def _show(name: str, done: Any, arguments: argparse.Namespace, pages: Mapping[str, str]) -> None:
    if arguments.write or arguments.check:
        if done.changed:
            print(f"{name}: {'rewritten' if arguments.write else 'would change'}")
    else:
        before, after = done.before.splitlines(True), done.text.splitlines(True)
        for line in difflib.unified_diff(before, after, name, f"{name} ({arguments.to})"):
            sys.stdout.write(line if line.endswith("\n") else line + "\n")
    for found in sorted(done.decisions, key=lambda f: (f.line, f.rule)):
        text = f"{name}:{found.line}: {found.message} [{found.rule}; {pages[found.rule]}]"
        print(text, file=sys.stderr)
