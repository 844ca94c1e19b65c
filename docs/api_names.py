"""Pages of `docs/api` list names by kind; Sphinx gets the directives that describe them.

    ```{functions} nki_dist.language
    zeros ones full
    ```

stands for `.. autofunction:: zeros` and so on, in that module. Classes come with their members.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

KINDS: Final = {
    "functions": "autofunction",
    "values": "autodata",
    "classes": "autoclass",
    "exceptions": "autoexception",
}
_LIST: Final = re.compile(
    rf"^```\{{({'|'.join(KINDS)})\}} ([\w.]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def expand(app: Any, docname: str, source: list[str]) -> None:
    """Sphinx's `source-read`."""
    source[0] = directives(source[0])


def directives(page: str) -> str:
    """The page with autodoc's directives in place of its lists."""
    return _LIST.sub(lambda found: "\n".join(_block(*found.groups())), page)


def _block(kind: str, module: str, names: str) -> Iterator[str]:
    yield from ("```{eval-rst}", f".. currentmodule:: {module}", "")
    for name in names.split():
        yield f".. {KINDS[kind]}:: {name}"
        if kind == "classes":
            yield "   :members:"
    yield "```"
