"""Makes docs/codes.md: `python docs/codes_page.py > docs/codes.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Final

from nki_dist.codes import RETIRED, SECTIONS, Code, address

_HEAD: Final = """\
# What does the code of an error mean?

Every error and warning of the simulator has a code, which names the kind of mistake: `error.code`,
the end of the line that says where, and `nki-dist explain CODE`. A code means the same in every
version; one that isn't used any longer is listed as retired. AWS's codes are those of pages about
neuronx-cc that describe the same mistake, or the same mistake of the instruction that is named.

`python docs/codes_page.py > docs/codes.md` writes this page.
"""


def page() -> str:
    """The page as Markdown."""
    lines = [_HEAD]
    for section, codes in SECTIONS.items():
        lines += [f"## {section}", "", "| Code | Mistake | What to do | AWS |", "|---|---|---|---|"]
        for code in codes:
            lines.append(
                f"| `{code.name}` | {code.title} | {code.hint} | {', '.join(_aws(code))} |"
            )
        lines.append("")
    if RETIRED:
        lines += ["## Retired", "", "| Code | Now |", "|---|---|"]
        lines += [f"| `{old}` | `{new}` |" for old, new in RETIRED.items()]
        lines.append("")
    return "\n".join(lines)


def _aws(code: Code) -> Iterator[str]:
    for aws in code.aws:
        yield f"[{aws}]({address(aws)})"
    for instruction, found in code.aws_of.items():
        for aws in found:
            yield f"[{aws}]({address(aws)}) ({instruction})"


if __name__ == "__main__":
    sys.stdout.write(page())
