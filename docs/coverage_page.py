"""The coverage page, derived from the instructions' declarations.

`python docs/coverage_page.py > docs/coverage.md` writes it; a test compares. A cost counts as
known if the instruction says so when asked with plain operands (one 128x512 tile for each tensor);
operand forms of different cost aren't told apart.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from nki_dist import arch, dtypes
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.operands import Choice, Op, Role, Tensor
from nki_dist.isa.spec import Spec
from nki_dist.program import Access, Instruction, MemoryRegion, Storage

PLATFORMS: Final = ("trn1", "trn2", "trn3")
SITE: Final = "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/"
OWN: Final = ("language_math",)  # instructions nobody documents: ours

HEAD: Final = """# Which instructions are there, and how exact are they?

Written by `python docs/coverage_page.py`; don't edit.

- *Engines*: the first is what the simulator picks when the kernel doesn't say (some choose by
  operands).
- *Results*: "exact" means float32 (or integer, or bits) as documented with one rounding at the end.
  Two things the documentation leaves open everywhere: the order of float32 sums, where ours is
  fixed and stated in `isa/reductions.py`, and the Scalar engine's tables, where ours are within 2
  ulp of float32 of the function (sine: as documented). "approximate" says what else may differ.
- *Cost*: "documented" follows a published formula; "assumed" is our guess, and profiles name it.
- What the documentation leaves open is refused with a typed error when the kernel is traced.
  `.indirect()` operands (trn3) are taken where the documentation lists them; of the index tile only
  the elements its formula names are read.

| instruction | engines | platforms | results | cost |
|---|---|---|---|---|
"""


def page() -> str:
    """The whole page, as Markdown."""
    rows = [_row(INSTRUCTIONS[name]) for name in sorted(INSTRUCTIONS)]
    return HEAD + "\n".join(rows) + "\n"


def _row(spec: Spec) -> str:
    name = f"`{spec.name}`"
    if spec.name not in OWN:
        name = f"[{name}]({SITE}{spec.documented}.html)"
    cells = [name, ", ".join(spec.engines), ", ".join(_platforms(spec)), spec.exactness, cost(spec)]
    return "| " + " | ".join(cells) + " |"


def _platforms(spec: Spec) -> Iterator[str]:
    return (p for p in PLATFORMS if arch.get(p).generation >= spec.min_generation)


def cost(spec: Spec) -> str:
    """Whether its cost is documented or assumed, by engine where that differs."""
    known = {e: _known(spec, e) for e in spec.engines}
    if len(set(known.values())) == 1:
        return known[spec.engines[0]]
    return ", ".join(f"{word} on {engine}" for engine, word in known.items())


def _known(spec: Spec, engine: str) -> str:
    i = representative(spec, engine)
    known = all(spec.cost_of(i, arch.get(p)).known for p in _platforms(spec))
    return "documented" if known else "assumed"


def representative(spec: Spec, engine: str) -> Instruction:
    """The instruction with a plain value for every parameter; it need not be a valid one."""
    args = {
        p.name: _value(spec.roles.get(p.name), 1 if p.default is p.empty else p.default)
        for p in spec.signature.parameters.values()
    }
    return Instruction(spec.name, args, engine, 0, 0)


def _value(role: Role | None, default: Any) -> Any:
    if isinstance(role, Tensor):
        return [_tile(role)] if role.many else _tile(role)
    if isinstance(role, Op):
        return min(role.allowed)
    return role.allowed[0] if isinstance(role, Choice) else default


def _tile(role: Tensor) -> Access:
    region = next(r for r in MemoryRegion if r.value in role.memories)
    allowed = role.dtypes or {dtypes.float32}
    dtype = dtypes.float32 if dtypes.float32 in allowed else min(allowed, key=lambda d: d.name)
    storage = Storage(0, region, (128, 512), dtype)
    return Access(storage, 0, storage.shape, storage.strides, dtype)


if __name__ == "__main__":
    sys.stdout.write(page())
