"""`nki-dist explain`: what the code of an error means, and what repairs it.

Say what a code of an error or warning means, what usually repairs it, and which page of AWS's
compiler describes the same mistake. Without a code, list them all.

[options]

examples:
  nki-dist explain psum-bank
  nki-dist explain | grep dtype
"""

from __future__ import annotations

import argparse
import difflib
import sys
from typing import Any

from nki_dist import codes
from nki_dist.cli.shared.command import add_command


def register(subparsers: Any) -> None:
    parser = add_command(subparsers, "explain", "say what the code of an error means", __doc__, run)
    parser.add_argument("codes", metavar="CODE", nargs="*", help="such as psum-bank")


def run(arguments: argparse.Namespace) -> int:
    """Print what is known of the codes; 2 if one is unknown."""
    if not arguments.codes:
        width = max(map(len, codes.CODES))
        for code in codes.CODES.values():
            print(f"{code.name:{width}}  {code.title}")
        return 0
    status = 0
    for name in arguments.codes:
        name = codes.RETIRED.get(name.strip("[]"), name.strip("[]"))
        if name in codes.CODES:
            print(_explained(codes.CODES[name]))
        else:
            status = 2
            near = difflib.get_close_matches(name, codes.CODES, 3)
            advice = f"did you mean {' or '.join(near)}?" if near else "`nki-dist explain` has all"
            print(f"nki-dist explain: no code {name!r}; {advice}", file=sys.stderr)
    return status


def _explained(code: codes.Code) -> str:
    lines = [code.name, f"  {code.title}", f"  {code.hint}"]
    lines += [f"  AWS: {aws}, {codes.address(aws)}" for aws in code.aws]
    for instruction, found in code.aws_of.items():
        lines += [f"  AWS, in {instruction}: {aws}, {codes.address(aws)}" for aws in found]
    return "\n".join(lines)
