"""A small program for each instruction: on its place in the reference, and run by the tests.

What differs between them is in the tables of this package: arrays, the lines around the
instruction, and what has to come out, worked out with NumPy. The rest of a program is made here.
"""

from __future__ import annotations

import re

from instruction_examples import elementwise, many, moving, rows
from instruction_examples.example import Example

EXAMPLES: dict[str, Example] = {
    **moving.EXAMPLES,
    **elementwise.EXAMPLES,
    **rows.EXAMPLES,
    **many.EXAMPLES,
}
"""By the name under which the instruction is called."""

OPCODES = {
    "read_rank_id": "rank_id",
    "scalar_arithmetic": "scalar_load",  # recorded by the operators of what that returns
    "read_ring_rank_id": "collective_permute_implicit_current_processing_rank_id",
    "language_math": "tan",  # called by operators of nki.language that no instruction has
}
"""Those of instructions that are called by another name."""


def program(name: str) -> str:
    """The whole program: it can be copied, and fails if the result is another."""
    e = EXAMPLES[name]
    arrays = re.findall(r"^(\w+) =", e.arrays, re.MULTILINE)
    lines = ["import numpy as np", "", "import nki_dist as nki"]
    lines += ["import nki_dist.collectives as ncc"] * ("ncc." in e.body)
    lines += ["import nki_dist.isa as nisa"] * ("nisa." in e.body)
    lines += ["import nki_dist.language as nl", "", ""]
    lines += [f'@nki.jit(platform_target="{e.platform}")' if e.platform else "@nki.jit"]
    lines += [f"def kernel({', '.join(arrays)}):"]
    lines += [f"    {name} = nl.load({name})" for name in arrays if not e.in_hbm]
    if e.dst:
        memory = "shared_hbm" if e.in_hbm else "sbuf"
        lines += [f"    dst = nl.ndarray({e.dst}, dtype={e.dtype}, buffer=nl.{memory})"]
    lines += [f"    {line}" if line else "" for line in e.body.strip().splitlines()]
    if e.in_hbm:
        lines += ["    return dst"]
    else:
        lines += ["    out = nl.ndarray(dst.shape, dtype=dst.dtype, buffer=nl.shared_hbm)"]
        lines += ["    nl.store(out, dst)", "    return out"]
    lines += ["", "", *e.arrays.strip().splitlines()]
    if e.ranks:
        lines += [f'with nki.World(ranks={e.ranks}, host="inprocess") as world:']
        given = ", ".join(f"nki.per_rank({name})" for name in arrays)
        lines += [f"    outs = world.run(kernel, {given})"]
    else:
        cores = f"[{e.cores}]" if e.cores else ""
        lines += [f"out = nki.simulate(kernel{cores})({', '.join(arrays)})"]
    return "\n".join([*lines, *e.want.strip().splitlines()]) + "\n"
