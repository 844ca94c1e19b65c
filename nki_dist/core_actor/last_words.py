"""What cores had printed before their launch was given up.

Prints travel with an actor's answer. Cores that wait for ever are given up by the launcher, so it
is the launcher that answers for them; told to cancel, the actors answer too, and what they carry is
what led to the deadlock. An actor that is dead or doesn't react has no say: the wait is short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nki_dist.core_actor.calls import Calls

PATIENCE: Final = 1.0  # seconds; parked cores react within milliseconds


def add_prints(given_up: Sequence[int], calls: Calls, launch: int, answers: Sequence[Any]) -> None:
    """Put what actors printed into the answers that were given for them.

    Args:
        given_up: numbers of the actors, which have been told to cancel.
        answers: of all actors.
    """
    for n, answer in calls.answers(given_up, launch, PATIENCE):
        if not isinstance(answer, Exception):  # else the process died, and its prints with it
            answers[n].printed = answer.printed
