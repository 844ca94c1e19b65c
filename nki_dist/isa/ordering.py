"""Which exchanges order the two cores of a logical core.

The check of races counts them as it goes: what the cores do between the same two isn't ordered. An
exchange that a core has with itself alone orders nothing. Collectives count always, although those
on SBUF tensors meet cores of other ranks only: the check errs in the kernel's favour.
"""

from __future__ import annotations

from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction


def orders_cores(i: Instruction, core: int) -> bool:
    """Whether `core` and the other one meet when `core` (0 or 1) executes the instruction."""
    if i.opcode == "core_barrier":
        return core in i["cores"] and len(i["cores"]) > 1
    if i.opcode == "sendrecv":
        return {i["send_to_rank"], i["recv_from_rank"]} != {core}
    return INSTRUCTIONS[i.opcode].synchronises
