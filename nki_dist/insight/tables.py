"""What a notebook shows of records: tables without scripts or styles of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]], more: int) -> str:
    """A table under a title; `more` rows aren't shown. Texts are escaped here."""
    first = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    rest = f"<p>... and {more:,} more</p>" if more > 0 else ""
    return f"<p>{escape(title)}</p><table><tr>{first}</tr>{body}</table>{rest}"


def html_text(text: str) -> str:
    """Lines as they are printed."""
    return f"<pre>{escape(text)}</pre>"


def plural(count: int, noun: str) -> str:
    """A count and what is counted."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
