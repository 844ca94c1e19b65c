"""docs/refusals.md, made of the rules and of what can't be known here."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from tests.refusals import (
    collectives,
    dma,
    gpsimd,
    language,
    matmul,
    memory,
    reported,
    scalar,
    vector,
)
from tests.refusals.rule import Rule
from tests.refusals.unknowable import UNENFORCED, UNKNOWABLE

PAGE = Path(__file__).parents[2] / "docs" / "refusals.md"
SECTIONS: dict[str, ModuleType] = {
    "Python, arguments, results, loops": language,
    "Memories, views and access patterns": memory,
    "The Tensor engine": matmul,
    "Fills, copies, operators and reductions": vector,
    "Activations, random numbers, statistics, selections": scalar,
    "Gathers, searches, exchanges between cores, registers": gpsimd,
    "DMA": dma,
    "Collectives": collectives,
    "Reported, or said by one of AWS's documents only": reported,
}

HEAD = """# What AWS's compiler would refuse

A kernel that runs in a simulator may still not compile for a device. This page lists the rules that
are known of AWS's compiler and can be seen without it. What AWS documents is an error here; what is
only reported, or what published kernels do all the same, is a
[`CompilerMayRejectWarning`](api/errors.md), given once per line of the kernel. Kernels of Beta 1
(`neuronxcc.nki`) are held to Beta 1's rules; rules that came later aren't asked of them.

    warnings.simplefilter("error", nki_dist.errors.CompilerMayRejectWarning)

makes errors of the warnings. A program that compiles without either can still be refused: the
compiler isn't here, and its rules are known as far as somebody wrote them down.

Sources are paths in [aws-neuron-sdk](https://github.com/aws-neuron/aws-neuron-sdk) unless they name
another repository; `nki/api/nki/isa (x)` is the page of `nisa.x`. Each rule has two kernels that
differ in nothing else, in the file under its heading: one that is refused, and one that isn't.
"""


def rules() -> list[Rule]:
    """All rules, in the order of the page."""
    return [rule for section in SECTIONS.values() for rule in section.RULES]


def page() -> str:
    """The text of docs/refusals.md."""
    parts = [HEAD]
    for title, section in SECTIONS.items():
        file = f"tests/refusals/{section.__name__.rpartition('.')[2]}.py"
        parts.append(f"\n## {title}\n\nPairs of kernels: [`{file}`](../{file})\n")
        parts.append("\n| rule | AWS's compiler refuses what breaks it | here | source |\n")
        parts.append("|---|---|---|---|\n")
        parts += map(_row, section.RULES)
    parts.append(
        "\n## Documented, and not asked here\n\nPublished kernels, newer pages or newer releases "
        "say otherwise.\n\n| rule | source | why not |\n|---|---|---|\n"
    )
    parts += [f"| {says} | {source} | {why} |\n" for says, source, why in UNENFORCED]
    parts.append(
        "\n## Documented, and not to be known here\n\n| error | source | why |\n|---|---|---|\n"
    )
    parts += [f"| {says} | {source} | {why} |\n" for says, source, why in UNKNOWABLE]
    return "".join(parts)


def _row(rule: Rule) -> str:
    here = f"warning: {rule.warns}" if rule.warns else "error"
    return f"| `{rule.name}` | {rule.says} | {here} | {rule.source} |\n"
