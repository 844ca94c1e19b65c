"""Programs of older releases of NKI, rewritten where there is one right answer.

`migrate(text)` gives the new text, what was changed and what a person has to decide. Comments and
layout stay, but for those of what is rewritten.

Rules never change what a program computes. Where the text doesn't say enough (a dtype, a rank, a
mask), the place is listed and stays as it was.
"""

from __future__ import annotations

import ast

from nki_dist.migrate.calls import Calls
from nki_dist.migrate.edits import Source
from nki_dist.migrate.kernels import Kernels
from nki_dist.migrate.names import Names
from nki_dist.migrate.placement import place
from nki_dist.migrate.report import Finding, Migrated

__all__ = ["Finding", "Migrated", "migrate"]


def migrate(text: str, to: str = "0.7") -> Migrated:
    """The program, for a release.

    Args:
        text: of a Python file.
        to: "0.6" or "0.7".

    Raises:
        SyntaxError: the text isn't Python, or wouldn't be afterwards.
    """
    done = Migrated(text)
    source = Source(text)
    names = Names(source.tree)
    Calls(names, source, done, to)
    if names.beta1:
        source = Source(source.text())
        Kernels(names, source, done)
        source = Source(source.text())
        place(names, source)
    done.text = source.text()
    ast.parse(done.text)
    return done
