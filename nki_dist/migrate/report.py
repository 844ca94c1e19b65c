"""What a migration did and what it leaves to a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nki_dist.migrate.rules import PAGES


@dataclass(frozen=True)
class Finding:
    """One place in a file.

    Attributes:
        rule: the name of a rule, one of `rules.PAGES`.
        line: from 1, in the file as it was given.
        message: what was changed, or what a person has to decide and why.
    """

    rule: str
    line: int
    message: str


@dataclass
class Migrated:
    """A file's text after the rules.

    Attributes:
        before, text: the file as it was and as it should be.
        changes: what was rewritten.
        decisions: what has no single right answer.
    """

    before: str
    text: str = ""
    changes: list[Finding] = field(default_factory=list)
    decisions: list[Finding] = field(default_factory=list)

    @property
    def changed(self) -> bool:
        """Whether the text is another one."""
        return self.text != self.before

    def to_dict(self, path: str) -> dict[str, Any]:
        """For `--json`."""

        def listed(found: list[Finding]) -> list[dict[str, Any]]:
            return [
                {"rule": f.rule, "line": f.line, "message": f.message, "page": PAGES[f.rule]}
                for f in sorted(found, key=lambda f: (f.line, f.rule))
            ]

        return {
            "file": path,
            "changed": self.changed,
            "changes": listed(self.changes),
            "decisions": listed(self.decisions),
        }
