"""What the reference says about an instruction beyond its docstring: its declaration, in words.

Read from the same roles that check a kernel's operands, so the page can't say something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import coverage_page
from instruction_examples import EXAMPLES, program

from nki_dist import arch
from nki_dist.dtypes import DType
from nki_dist.isa.operands import FLAG, Choice, Number, Op, Register, Role, Tensor
from nki_dist.isa.spec import Spec

_CONSTANTS = {
    "sbuf": ["The memory that all engines work on: 128 partitions."],
    "psum": ["Where the Tensor engine accumulates: 128 partitions of 8 banks."],
    "private_hbm": ["HBM of one core."],
    "shared_hbm": ["HBM of all cores of the launch; arguments and results are there."],
    "hbm": ["Allocates private HBM; equal to both HBM memories in comparisons."],
    "tile_size": ["Limits of the platform that the kernel is compiled for."],
    "average": ["Operator of `nisa.tensor_partition_reduce`; not a function of tiles."],
    "prelu": ["Operator of `nisa.activation` and `nisa.activate2`; not a function of tiles."],
    "bypass": ["Operator that leaves one stage of an instruction out; not a function of tiles."],
    "INSTRUCTIONS": ["Every instruction, by name: a read-only mapping to its declaration."],
}
_SHORT = {"nki_dist.isa": "nisa", "nki_dist.collectives": "ncc", "nki_dist.language": "nl"}
_MODES = {"r": "read", "w": "written", "rw": "read and written", "": "neither read nor written"}


def add_declaration(
    app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Sphinx's `autodoc-process-docstring`: say what an instruction or a constant is."""
    if isinstance(thing, Spec):
        lines += ["", *declaration(thing), ""]
    elif isinstance(thing, DType):
        lines[:] = [_data_type(thing), ""]
    elif what == "data":  # the docstring would be the one of its class
        lines[:] = _CONSTANTS.get(name.rpartition(".")[2], [])
    lines += example_of(name)


def example_of(name: str) -> list[str]:
    """reStructuredText lines of the example of what the reference has under a name, if any.

    Args:
        name: with its module; a function of tiles may be called as an instruction is.
    """
    module, _, short = name.rpartition(".")
    called = f"{_SHORT.get(module, '')}.{short}("
    if short not in EXAMPLES or called not in program(short):
        return []
    code = [f"    {line}".rstrip() for line in program(short).splitlines()]
    return ["", ".. rubric:: Example", "", ".. code-block:: python", "", *code, ""]


def declaration(spec: Spec) -> Iterator[str]:
    """reStructuredText lines: engines, platforms, exactness, cost, and what operands may be."""
    platforms = [
        p for p in coverage_page.PLATFORMS if arch.get(p).generation >= spec.min_generation
    ]
    yield f":Engines: {', '.join(spec.engines)}"
    yield f":Platforms: {', '.join(platforms)}"
    yield f":Results: {spec.exactness}"
    yield f":Cost: {coverage_page.cost(spec)}"
    yield ":Operands:"
    for name, role in spec.roles.items():
        words = describe(role)
        if words:
            yield f"    - `{name}`: {words}"
    if spec.name not in coverage_page.OWN:
        yield f":Documented: `AWS's page <{coverage_page.SITE}{spec.documented}.html>`__"


def describe(role: Role) -> str:
    """What a parameter may be; empty where only the docstring can say it."""
    if isinstance(role, Tensor):
        return _tensor(role)
    if isinstance(role, Choice):
        return f"one of {_listed(v.name for v in role.allowed)} of `{role.enum.__name__}`"
    if isinstance(role, Op):
        return f"an operator: {_listed(sorted(role.allowed))}" + _or_none(role.optional)
    if isinstance(role, Number):
        return ("an int" if role.integer else "a number") + _or_none(role.optional)
    if isinstance(role, Register):
        return "a register"
    return "True or False" if role is FLAG else ""


def _tensor(role: Tensor) -> str:
    kinds = [f"{'tensors' if role.many else 'a tensor'} in {_memories(role)}"]
    kinds += ["a number"] if role.scalar else []
    kinds += ["None"] if role.optional else []
    words = f"{_MODES[role.mode]}; {' or '.join(kinds)}"
    if role.dtypes is not None:
        words += f"; dtypes {_listed(sorted(d.name for d in role.dtypes))}"
    if role.indirect:
        words += f"; `.indirect()` with {role.indirect} partitions per group"
    return words


def _memories(role: Tensor) -> str:
    order = ("sbuf", "psum", "private_hbm", "shared_hbm")
    return _listed(m for m in order if m in role.memories)


def _data_type(dtype: DType) -> str:
    if dtype.is_mx:
        return f"Four packed values in {dtype.itemsize} bytes; the largest value is {dtype.max}."
    size = "1 byte" if dtype.itemsize == 1 else f"{dtype.itemsize} bytes"
    if dtype.kind == "bool":
        return f"{size}; 0 or 1."
    return f"{size}; finite values from {dtype.min} to {dtype.max}."


def _listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _or_none(optional: bool) -> str:
    return " or None" if optional else ""
