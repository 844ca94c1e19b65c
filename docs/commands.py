"""The parser of `nki-dist` for docs/cli.md: its texts as reStructuredText, which Sphinx takes."""

from __future__ import annotations

import argparse
import re

from nki_dist import cli


def parser() -> argparse.ArgumentParser:
    """As `nki_dist.cli.parser`; indented lines after a colon are blocks of code."""
    top = cli.parser()
    (commands,) = (a.choices for a in top._actions if isinstance(a, argparse._SubParsersAction))
    for command in (top, *commands.values()):
        command.description = _text(command.description or "")
        command.epilog = _text(command.epilog or "")
        for action in command._actions:
            if action.help and action.help != argparse.SUPPRESS:
                action.help = action.help.replace("*", r"\*")
    return top


def _text(plain: str) -> str:
    blocks = re.sub(r":\n(?=  )", "::\n\n", plain)
    blocks = re.sub(r"^(  .*)\n(?=\S)", r"\1\n\n", blocks, flags=re.M)
    return re.sub(r"^(?!  ).*", lambda line: line[0].replace("*", r"\*"), blocks, flags=re.M)
