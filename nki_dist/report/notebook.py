"""What a notebook shows of a profile: the numbers and the tables, without scripts.

Notebooks keep what they show, so this is small: no events, no source, no library.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

from nki_dist.report import text

_LINES: Final = 12


def notebook_html(profile: Mapping[str, Any]) -> str:
    """A fragment of HTML.

    Args:
        profile: `Profile.to_dict()`.
    """
    style = resources.files("nki_dist.report").joinpath("assets", "style.css").read_text("utf-8")
    few = {**profile, "lines": profile["lines"][:_LINES]}
    return (
        # A scope of its own, so that the notebook keeps its looks.
        f"<div class=nki-dist><style>.nki-dist {{ {_scoped(style)} }}</style>"
        f"{text.head(profile)}<div class=two><section><h2>What bounded it</h2>"
        f"{text.bounds(profile)}</section><section><h2>Engines</h2>{text.engines(profile)}"
        f"</section></div><section><h2>Lines</h2>{text.lines(few)}</section></div>"
    )


def _scoped(style: str) -> str:
    """The sheet as rules nested in a scope; those of the whole page become the scope's."""
    return style.replace(":root", "&").replace("body", "&")
