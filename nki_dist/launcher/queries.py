"""Records of launches that a program makes itself, for `nki-dist record` and `nki-dist drift`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from nki_dist.errors import NkiError
from nki_dist.forks import Shared
from nki_dist.insight.record import Record
from nki_dist.launcher.recording import copied, recorded
from nki_dist.runtime.hosts import Launch, LaunchResult


class Querier(Shared):
    """An observer of launches (`Session.observer`) that records some of them and asks at once.

    A record holds copies of its arguments, so none outlives the answer. What goes wrong with the
    question is part of the answer: the program that launched mustn't notice it.

    Args:
        ask: what is asked of a record; `outputs` of these records are None.
        kernel: only launches of kernels of this name; None for all.
        number: which of the launches of a kernel with equal arguments, from 1 on; None for all.

    Attributes:
        launches: by kernel name, how many launches there were.
        answers: of the launches that were asked: the kernel's name, the launch's number among those
            of its kind, and what `ask` returned or the error that it raised.
    """

    def __init__(
        self, ask: Callable[[Record], Any], kernel: str | None = None, number: int | None = 1
    ) -> None:
        self._ask, self._kernel, self._number = ask, kernel, number
        super().__init__()
        self._seen: Counter[Any] = Counter()
        self.launches: Counter[str] = Counter()
        self.answers: list[tuple[str, int, Any]] = []

    def __call__(self, world: Any, launch: Launch, result: LaunchResult) -> None:
        """Ask, while the arguments are still as the kernel found them."""
        compiled = launch.compiled
        with self._lock:
            self.launches[compiled.kernel] += 1
            kind = (compiled.kernel, str(compiled.inputs), world.ranks, world.lnc, world.arch)
            self._seen[kind] += 1
            number = self._seen[kind]
        if self._kernel not in (None, compiled.kernel) or self._number not in (None, number):
            return
        record = recorded(world, None, compiled, copied(launch.inputs), result)
        try:
            answer = self._ask(record)
        except NkiError as error:
            answer = error
        with self._lock:
            self.answers.append((compiled.kernel, number, answer))


__all__ = ["Querier"]
