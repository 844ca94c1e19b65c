"""How an actor says who it is, so that Ray can say so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


class ActorRepr:
    """An actor's `__repr__` that isn't a function.

    Where a node can't import the class of an actor, Ray has each of its functions raise an error
    that says so, `__repr__`, too; then it wants to put `repr` into the message, fails, and the
    process dies without a reason. What isn't a function is left out (known of Ray 2.60).

    Args:
        tell: the text, of the actor.
    """

    def __init__(self, tell: Callable[[Any], str]) -> None:
        self._tell = tell

    def __get__(self, actor: Any, kind: type | None = None) -> Any:
        return self if actor is None else partial(self._tell, actor)
