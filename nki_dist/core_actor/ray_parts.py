"""Parts of Ray that are other ones for a while, where it has no setting for what is wanted.

Each of them is private to Ray. One that Ray has put elsewhere isn't replaced, so that Ray does what
it likes; the modules that ask for it say what that costs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def ray_part(module: str, name: str = "") -> Any:
    """A module of Ray's, or what it has by this name; None where there is none."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return None
    return getattr(found, name, None) if name else found


@contextmanager
def replaced(owner: Any, parts: Mapping[str, Any]) -> Iterator[None]:
    """While it runs, an owner's parts are these; the caller sees to it that one thread does so."""
    kept = {name: vars(owner)[name] for name in parts}
    for name, part in parts.items():
        setattr(owner, name, part)
    try:
        yield
    finally:
        for name, part in kept.items():
            setattr(owner, name, part)
