"""Tensors and registers belong to one trace: those of another are refused.

A kernel may leave a tensor in a global or a cache and find it again in its next launch, or in the
trace of the next core. Its storage number then means something else, or nothing: used unchecked it
would silently address another tensor's data.
"""

from __future__ import annotations

from typing import Any

from nki_dist.compiler.loop_scope import refuse_ended
from nki_dist.errors import CompileError
from nki_dist.program import Dynamic, Program, Storage, VirtualRegister

_ADVICE = (
    "it belongs to another launch or core: tensors and registers live only while the kernel that "
    "made them is traced. Don't keep them in globals, attributes or caches; pass tensors as "
    "arguments and return them"
)


def owns(program: Program, storage: Storage) -> bool:
    """Whether a storage is one of this program's."""
    storages = program.storages
    return 0 <= storage.number < len(storages) and storages[storage.number] is storage


def foreign(what: str) -> CompileError:
    """The error of what belongs to another trace."""
    return CompileError(f"{what} can't be used here: {_ADVICE}", code="foreign-tensor")


def check_register(trace: Any, register: VirtualRegister) -> None:
    """Raise CompileError for a register of another trace."""
    if register.tracer is not trace:
        raise foreign(f"register {register}")


def check_dynamic(trace: Any, dynamic: Dynamic) -> None:
    """Check that what a run-time index is read from is this trace's, and still there."""
    source = dynamic.source
    if isinstance(source, VirtualRegister):
        check_register(trace, source)
    elif not owns(trace.program, source.storage):
        raise foreign(source.storage.label)
    elif source.storage.number in trace.ended:
        refuse_ended(trace, source.storage)
