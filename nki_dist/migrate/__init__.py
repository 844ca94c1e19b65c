"""Programs of older releases of NKI, rewritten where there is one right answer.

`migrate(text)` gives the new text, what was changed and what a person has to decide. It needs
LibCST, which keeps comments and layout: the extra `nki_dist[migrate]`.

Rules never change what a program computes. Where the text doesn't say enough (a dtype, a rank, a
mask), the place is listed and stays as it was.
"""

from __future__ import annotations

import ast
from dataclasses import replace

import libcst as cst
from libcst.metadata import MetadataWrapper

from nki_dist.migrate.calls import Calls, kernels_of
from nki_dist.migrate.instances import Launches, axes_of
from nki_dist.migrate.kernels import Kernels
from nki_dist.migrate.loops import Loops
from nki_dist.migrate.names import names_of
from nki_dist.migrate.placement import Placements, know
from nki_dist.migrate.report import Finding, Migrated

__all__ = ["Finding", "Migrated", "migrate"]

RELEASES = ("0.6", "0.7")


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
    if names.beta1:
        know(module, names)
    axes = axes_of(module, names, kernels_of(module, names)) if names.beta1 else {}
    calls = Calls(names, done, to)
    module = MetadataWrapper(module).visit(calls)
    if names.beta1:
        kernels = Kernels(names, done, to, axes)
        module = MetadataWrapper(module).visit(kernels)
        looped = {n: axes[n] for n in axes if n in kernels.looped or not axes[n]}
        module = module.visit(Launches(names, looped))
        for found in [f for name in looped for f in calls.launches.get(name, [])]:
            done.decisions.remove(found)
            done.changes.append(replace(found, message="the grid is an argument, or none"))
    if to == "0.7":
        module = MetadataWrapper(module).visit(Loops(names, done))
    if names.beta1:
        module = module.visit(Placements(names))
    done.text = module.code
    ast.parse(done.text)
    return done
