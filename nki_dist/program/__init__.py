"""What a compiled kernel is made of: storages, accesses, registers, instructions, loops, programs.

This layer knows no instruction by name and does nothing: the compiler fills it, the core actor
runs it, the codec writes it down.
"""

# ruff: noqa: F401 -- what is imported here is exported

from nki_dist.program.access import Access, Dynamic
from nki_dist.program.instruction import (
    UNROLLED,
    Block,
    Instruction,
    Loop,
    Program,
    instructions,
    loops,
    rewritten,
)
from nki_dist.program.memory import MemoryRegion, hbm, private_hbm, psum, sbuf, shared_hbm
from nki_dist.program.register import VirtualRegister
from nki_dist.program.signature import TensorSignature
from nki_dist.program.storage import Storage
