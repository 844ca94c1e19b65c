"""docs/refusals.md, made of the rules and of what can't be known here."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from nki_dist.codes import EVIDENCE
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

HEAD = """# What would AWS's compiler refuse?

A kernel that runs in a simulator may still not compile for a device. This page lists the rules that
are known of AWS's compiler and can be seen without it. What AWS documents is an error here, what is
only reported is a [`CompilerMayRejectWarning`](api/errors.md), one for a launch. Evidence
decides: a rule that a published kernel breaks which ran on a device ("broken by") is silent,
whatever a document says. Kernels of Beta 1 (`neuronxcc.nki`) are checked against Beta 1's rules;
rules that came later aren't asked of them.

    nki-dist check PROGRAM              # every place of its kernels, without running them
    nki-dist check --strict PROGRAM     # also what published kernels do, with both sources

`refusals=off` in a policy ([checks](checks.md)) switches the warnings off; so does Python's own
filter,

    warnings.simplefilter("ignore", nki_dist.errors.CompilerMayRejectWarning)

and "error" in its place makes errors of them. A program that compiles without either can still be
refused: the compiler isn't here, and its rules are known as far as somebody wrote them down.

Sources are paths in [aws-neuron-sdk](https://github.com/aws-neuron/aws-neuron-sdk) unless they name
another repository; `nki/api/nki/isa (x)` is the page of `nisa.x`. Each rule has two kernels that
differ in nothing else, one that is refused and one that isn't: in a file of
[`tests/refusals`](../tests/refusals) for each heading.
"""


def rules() -> list[Rule]:
    """All rules, in the order of the page."""
    return [rule for section in SECTIONS.values() for rule in section.RULES]


def page() -> str:
    """The text of docs/refusals.md."""
    parts = [HEAD]
    for title, section in SECTIONS.items():
        file = section.__name__.rpartition(".")[2]
        parts.append(f"\n## {title} (`{file}.py`)\n")
        parts.append(
            "\n| rule | AWS's compiler refuses what breaks it | here | source | broken by |\n"
        )
        parts.append("|---|---|---|---|---|\n")
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
    found = EVIDENCE.get(rule.code)
    here = f"warning: {rule.warns}" if rule.warns else "error"
    broken = "" if found is None else f" {found.kernel}, {found.ran}"
    here = "silent" if found else here
    return f"| `{rule.name}` | {rule.says} | {here} | {rule.source} |{broken} |\n"
