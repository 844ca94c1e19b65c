"""`neuronxcc.nki.compiler` of Beta 1: direct allocation, and hints to AWS's compiler.

Follows: `nki.compiler` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from typing import Any

from nki_dist.compat.beta1 import psum_allocation as psum
from nki_dist.compat.beta1 import sbuf_allocation as sbuf
from nki_dist.compat.compiler import CompiledKernel, CompileOptions, NKIFrontend, ParserFrontend
from nki_dist.language.control import no_reorder


def _unchanged(func: Any = None, **options: Any) -> Any:
    """A decorator that gives AWS's compiler a hint; here it changes nothing."""
    return (lambda function: function) if func is None else func


skip_middle_end_transformations = enable_stack_allocator = force_auto_alloc = _unchanged


__all__ = [
    "CompileOptions",
    "CompiledKernel",
    "NKIFrontend",
    "ParserFrontend",
    "enable_stack_allocator",
    "force_auto_alloc",
    "no_reorder",
    "psum",
    "sbuf",
    "skip_middle_end_transformations",
]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
