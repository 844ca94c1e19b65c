"""The platforms whose figures are tested, and their figures one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nki_dist import arch as arches
from nki_dist.arch import Arch, Fact

PLATFORMS: Final[dict[str, Arch]] = {
    **{name: arches.get(name) for name in ("trn1", "trn1n", "inf2", "trn2", "trn2u", "trn3")},
    "trn3-gen2": arches.GEN2_ULTRASERVER,
}
GENERATIONS: Final = ("trn1", "trn2", "trn3")


def facts(arch: Arch) -> dict[str, Fact]:
    """By `field`, or `field.key` for each entry of a mapping, with the entry as value."""
    found = {}
    for name, fact in arch.facts.items():
        if isinstance(fact.value, Mapping):
            for key, value in fact.value.items():
                found[f"{name}.{key}"] = Fact(value, fact.kind, fact.source)
        else:
            found[name] = fact
    return found


def changes(value: Any) -> tuple[Any, ...]:
    """Other values of a figure: a probe has to see one of them."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, str):
        return ("torus" if value == "ring" else "ring",)
    if not value:
        return (1,)
    if isinstance(value, int):
        return (2 * value, value // 2 or 4, 1)
    return (2 * value, value / 2, value / 16)


def changed(arch: Arch, figure: str, value: Any) -> Arch:
    """The arch with another value of one figure."""
    field, dot, key = figure.partition(".")
    return arch.with_values(**{field: {**getattr(arch, field), key: value} if dot else value})
