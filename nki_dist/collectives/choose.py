"""Which algorithm a group uses: by how much data, how many members, and where they sit.

The first of the registry (`algorithms`) that fits the group and is preferred for it; when that is,
says the algorithm's file. NKI_DIST_COLLECTIVE_ALGORITHM overrides the choice. Values of a reduction
depend on it (see each algorithm's order), so nothing but a `Question` decides.
"""

from __future__ import annotations

from typing import Final

from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.question import Question
from nki_dist.errors import LaunchError

VARIABLE: Final = "NKI_DIST_COLLECTIVE_ALGORITHM"


def choose(question: Question, forced: str = "") -> Algorithm:
    """The algorithm of a group.

    Raises:
        LaunchError: `forced` names none, or one this group can't use.
    """
    if not forced:
        fitting = (a for a in ALGORITHMS if a.fits(question) and a.preferred(question))
        return next(fitting).of(question, choose)
    algorithm = named(forced)
    if not algorithm.fits(question):
        raise LaunchError(
            f"{VARIABLE}={forced}: a group of {question.size} ranks, {list(question.group)}, can't "
            f"use it; it needs {algorithm.needs} of members",
            code="collective-algorithm",
        )
    return algorithm.of(question, choose)


def named(name: str) -> type[Algorithm]:
    """The algorithm of that name.

    Raises:
        LaunchError: there is none.
    """
    for algorithm in ALGORITHMS:
        if algorithm.name == name:
            return algorithm
    allowed = ", ".join(a.name for a in ALGORITHMS)
    raise LaunchError(f"{VARIABLE}={name!r}; allowed: {allowed}", code="collective-algorithm")
