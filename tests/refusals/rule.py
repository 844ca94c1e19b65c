"""What a rule of AWS's compiler is here: a sentence, its source, and a pair of kernels.

The two kernels of a pair are one function of `bad`, so they differ in nothing but what the rule is
about. `docs/refusals.md` is made of these rules (`python -m tests.refusals`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompilerMayRejectWarning, NkiError
from nki_dist.language.creation import ndarray
from nki_dist.runtime.settings import CHECK_VARIABLE

F32, BF16, F16 = nl.float32, nl.bfloat16, nl.float16
I32, U32, I16, U16, I8, U8 = nl.int32, nl.uint32, nl.int16, nl.uint16, nl.int8, nl.uint8
E4M3, E5M2, FN = nl.float8_e4m3, nl.float8_e5m2, nl.float8_e4m3fn
FN_X4, E5M2_X4, E2M1_X4 = nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4


def sb(*shape: int, dtype: Any = F32) -> Any:
    return ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def ps(*shape: int, dtype: Any = F32) -> Any:
    return ndarray(shape, dtype=dtype, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = F32) -> Any:
    return ndarray(shape, dtype=dtype, buffer=nl.private_hbm)


def made(*shape, dtype=F32, buffer=nl.sbuf):
    tile = nl.ndarray(shape, dtype=dtype, buffer=buffer)
    nisa.memset(tile, value=0)
    return tile


def tt(
    op=nl.add,
    a=F32,
    b=F32,
    d=F32,
    pa=nl.sbuf,
    pb=nl.sbuf,
    pd=sb,
    shape=(8, 6),
    second=(8, 6),
    **options,
):
    nisa.tensor_tensor(
        pd(*shape, dtype=d),
        made(*shape, dtype=a, buffer=pa),
        made(*second, dtype=b, buffer=pb),
        op,
        **options,
    )


@dataclass(frozen=True)
class Rule:
    """A rule with its pair.

    Attributes:
        name: what pages and tests call it.
        says: the rule, as a sentence without its full stop.
        source: where it is documented or reported: a page, a repository's path, an issue.
        message: what the refusal says, in part.
        kernel: a function of `bad`, called inside a kernel.
        platform, lnc: of the launch.
        good_on: another platform for the kernel that keeps to the rule.
        warns: why it is a warning instead of an error, if it is.
        code: of that warning.
        launch: instead of `kernel`, a function of `bad` that launches.
        pair: instead of `kernel`, one that keeps to the rule and one that doesn't, where the rule
            is about the source.
    """

    name: str
    says: str
    source: str
    message: str
    kernel: Callable[[bool], Any] | None = None
    platform: str = "trn2"
    lnc: int = 1
    good_on: str = ""
    warns: str = ""
    code: str = ""
    launch: Callable[[bool], Any] | None = None
    pair: tuple[Callable[..., Any], Callable[..., Any]] | None = None

    def run(self, bad: bool) -> list[CompilerMayRejectWarning]:
        """Compile one of the pair; the warnings of the kind, those that devices contradict, too.

        Raises:
            NkiError: the kernel was refused.
        """
        platform = self.platform if bad else self.good_on or self.platform
        asked = patch.dict(os.environ, {CHECK_VARIABLE: "refusals=all"})
        with asked, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if self.launch is not None:
                self.launch(bad)
                found = [w.message for w in caught]
            else:
                body = self.kernel if self.pair is None else self.pair[bad]

                def kernel() -> None:
                    body(bad)

                made = nki.simulate(nki.jit(kernel, platform_target=platform))[self.lnc]
                found = list(made.compile().warnings)
        return [w for w in found if isinstance(w, CompilerMayRejectWarning)]

    def check(self) -> None:
        """The pair does what the rule says."""
        assert self.run(bad=False) == []
        if self.warns:
            found = self.run(bad=True)
            assert {warning.code for warning in found} == {self.code}
            assert any(self.message in warning.message for warning in found)
            assert all(warning.location for warning in found)
            return
        with pytest.raises(NkiError) as caught:
            self.run(bad=True)
        assert self.message in str(caught.value)
        assert caught.value.location or self.launch is not None


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)
