"""Groups against the world: what can be known before anything runs.

A program doesn't know how many ranks will run it, so the launcher asks here.
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.errors import NkiValidationError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction, Program, instructions


def check_world(programs: Sequence[Program], ranks: int) -> None:
    """Every rank of a world is in one group of each collective, and groups name no others.

    Raises:
        NkiValidationError: with the kernel line of the first collective where that isn't so.
    """
    for program in programs:
        for i in instructions(program.body):
            error = None
            if "replica_group" in i.args:
                error = _groups(i, ranks)
            elif "source_target_pairs" in i.args:
                error = _pairs(i, ranks)
            if error is not None:
                raise error.at(
                    location=program.where(i.location),
                    core=program.core,
                    instruction=INSTRUCTIONS[i.opcode].title,
                )


def _groups(i: Instruction, ranks: int) -> NkiValidationError | None:
    groups = i["replica_group"]
    named = {rank for group in groups for rank in group}
    beyond = sorted(named - set(range(ranks)))
    if beyond:
        return _beyond("replica_group", groups, beyond[0], ranks)
    missing = sorted(set(range(ranks)) - named)
    if missing:
        return NkiValidationError(
            f"rank {missing[0]} is in no group of replica_group={groups}, and the world has "
            f"{ranks} ranks, which all run this; give every rank a group"
        )
    return None


def _pairs(i: Instruction, ranks: int) -> NkiValidationError | None:
    pairs = i["source_target_pairs"]
    beyond = sorted({rank for pair in pairs for rank in pair if rank >= ranks})
    return _beyond("source_target_pairs", pairs, beyond[0], ranks) if beyond else None


def _beyond(name: str, value: object, rank: int, ranks: int) -> NkiValidationError:
    have = f"ranks 0 to {ranks - 1}" if ranks > 1 else "one rank, 0"
    return NkiValidationError(
        f"{name}={value} names rank {rank}; the world has {have}. Run it in "
        f"nki_dist.World(ranks=...) with as many ranks as the groups name"
    )
