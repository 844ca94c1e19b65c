"""Programs of older releases of NKI, rewritten where there is one right answer.

`migrate(text)` gives the new text, what was changed and what a person has to decide. It needs
LibCST, which keeps comments and layout: the extra `nki_dist[migrate]`.

Rules never change what a program computes. Where the text doesn't say enough (a dtype, a rank, a
mask), the place is listed and stays as it was.
"""

from __future__ import annotations

import ast

import libcst as cst
from libcst.metadata import MetadataWrapper

from nki_dist.migrate.calls import Calls
from nki_dist.migrate.kernels import Kernels
from nki_dist.migrate.names import names_of
from nki_dist.migrate.placement import Placements
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
    ast.parse(text)
    done = Migrated(text)
    module = cst.parse_module(text)
    names = names_of(module)
    module = MetadataWrapper(module).visit(Calls(names, done, to))
    if names.beta1:
        module = MetadataWrapper(module).visit(Kernels(names, done))
        module = module.visit(Placements(names))
    done.text = module.code
    ast.parse(done.text)
    return done
