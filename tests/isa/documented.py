"""Pairs for documented constraints: an instruction that keeps to one, and one that doesn't.

Compiled only: what accepted ones compute is checked elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import nki_dist.language as nl
from nki_dist.errors import CompileError, NkiError, NkiValidationError
from tests.compiler.compiling import compiled

F32, BF16, I32, U32 = nl.float32, nl.bfloat16, nl.int32, nl.uint32
E4M3, E5M2, FN = nl.float8_e4m3, nl.float8_e5m2, nl.float8_e4m3fn


def sb(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def ps(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.private_hbm)


class Rule(NamedTuple):
    """What is documented, an instruction that keeps to it, one that doesn't, and the message."""

    says: str
    kept: Callable[[], Any]
    broken: Callable[[], Any]
    message: str
    platform: str = "trn2"
    kept_on: str = ""  # another platform for `kept`


def check(rule: Rule) -> None:
    """One side compiles, the other is refused with the message and a place."""

    def kept():
        rule.kept()

    def broken():
        rule.broken()

    compiled(kept, platform=rule.kept_on or rule.platform)
    with pytest.raises(NkiError, match=rule.message) as caught:
        compiled(broken, platform=rule.platform)
    assert isinstance(caught.value, (NkiValidationError, CompileError))
    assert caught.value.location
