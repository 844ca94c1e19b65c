"""Python in kernels, arguments, results, loops."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.memory import _filled as made
from tests.refusals.rule import F32, I32, Rule, hbm, sb, zeros

GUIDE = "nki/get-started/nki-language-guide.rst"
MIGRATION = "nki/migration/index.rst (%s)"
LOOPS = "nki/deep-dives/nki-dynamic-loops.rst"
LNC = "nki/get-started/about/lnc.rst"


def launched(kernel, *args, grid=1, platform="trn2", **kwargs):
    nki.simulate(nki.jit(kernel, platform_target=platform))[grid](*args, **kwargs)


def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


def with_option(x, scale=1.0):
    return copied(x)


def keyword_only(x, *, scale=1.0):
    return copied(x)


def compares_by_value(b, flag=True):
    if flag == True:  # noqa: E712
        nisa.memset(sb(8, 6), value=0.0)


def compares_identity(b, flag=True):
    if flag is True:
        nisa.memset(sb(8, 6), value=0.0)


def string_keys(b):
    sizes = {"1": 6, "2": 8}
    nisa.memset(sb(8, sizes["1"]), value=0.0)


def integer_keys(b):
    sizes = {1: 6, 2: 8}
    nisa.memset(sb(8, sizes[1]), value=0.0)


class Struct(nl.NKIObject):
    def __init__(self, n):
        self.n = n


class Plain:
    def __init__(self, n):
        self.n = n


class Choice(enum.Enum):
    one = 1


def takes(x, what):
    return copied(x)


def returns_private(b):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm if b else nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    launched(kernel, zeros(8, 6))


def counted(b, step=1, write=False, result=False, use=False, arithmetic=False, after=False):
    tile = made(8, 6)
    kept = []

    def body(i):
        inner = sb(8, 6)
        kept.append(inner)
        nisa.tensor_copy(inner, tile)
        nisa.tensor_copy(tile, inner)
        if write:
            nisa.register_move(i, nisa.register_alloc(0))
        if arithmetic:
            i + 1
        if result:
            return tile

    nl.fori_loop(0, 4, body, step=step)
    if after:
        nisa.tensor_copy(tile, kept[0])


def ordered(b, inside):
    if inside:
        with nl.no_reorder():
            counted(b)
    else:
        for _ in nl.static_range(2):
            with nl.no_reorder():
                nisa.memset(sb(8, 6), value=0.0)


def loop_result(b):
    register = nisa.register_alloc(1)

    def body(r):
        return 1 if b else nisa.register_alloc(0)

    nl.while_loop(register, body)


def branches(b):
    register = nisa.register_alloc(1)
    if (register if b else True):
        nisa.memset(sb(8, 6), value=0.0)


def truth(b):
    tile = made(8, 6)
    if tile if b else True:
        nisa.memset(tile, value=0.0)


RULES = [
    Rule("keyword-only", "A kernel has no keyword-only parameters (`*`)", MIGRATION % "Remove keyword-only argument separator", "?", launch=lambda b: launched(keyword_only if b else with_option, zeros(8, 6), scale=2.0)),
    Rule("identity", "Values are compared with `==`, not with `is`", MIGRATION % "Replace is / is not", "?", pair=(compares_by_value, compares_identity)),
    Rule("dict-keys", "Keys of a dict are strings", GUIDE, "?", pair=(string_keys, integer_keys)),
    Rule("list-argument", "A list isn't a kernel's argument; a tuple is", MIGRATION % "Replace list kernel arguments with tuples", "?", launch=lambda b: launched(takes, zeros(8, 6), [1, 1] if b else (1, 1))),
    Rule("class-argument", "An object that is an argument is an `NKIObject`", GUIDE, "?", launch=lambda b: launched(takes, zeros(8, 6), Plain(1) if b else Struct(1))),
    Rule("private-result", "A kernel returns tensors in shared_hbm", MIGRATION % "Output tensors must use nl.shared_hbm", "?", launch=returns_private),
    Rule("sbuf-result", "A kernel returns no tile", "nki/get-started/about/memory-hierarchy-overview.rst", "?", launch=lambda b: launched((lambda x: nl.load(x)) if b else copied, zeros(8, 6))),
    Rule("number-result", "A kernel returns tensors", GUIDE, "?", launch=lambda b: launched((lambda x: 17) if b else copied, zeros(8, 6))),
    Rule("grid-one-number", "A launch grid is one number", LNC, "?", launch=lambda b: launched(copied, zeros(8, 6), grid=(1, 1) if b else 1)),
    Rule("grid-lnc", "A launch has at most the logical core's physical cores", LNC + "; NCC_EARG001", "?", launch=lambda b: launched(lambda x: None, zeros(8, 6), grid=8 if b else 2)),
    Rule("grid-trn1", "trn1 has no logical cores of two", LNC + "; NCC_EARG001", "?", launch=lambda b: launched(lambda x: None, zeros(8, 6), grid=2 if b else 1, platform="trn1")),
    Rule("loop-step", "The step of a dynamic loop is positive", LOOPS, "?", lambda b: counted(b, step=0 if b else 1)),
    Rule("loop-step-register", "The step of a dynamic loop is an int", LOOPS, "?", lambda b: counted(b, step=nisa.register_alloc(1) if b else 1)),
    Rule("loop-variable", "The loop variable isn't written", GUIDE, "?", lambda b: counted(b, write=b)),
    Rule("loop-arithmetic", "The loop variable has no arithmetic", MIGRATION % "Rules for migrated loops", "?", lambda b: counted(b, arithmetic=b)),
    Rule("loop-result", "The body of `fori_loop` returns nothing", MIGRATION % "Rules for migrated loops", "?", lambda b: counted(b, result=b)),
    Rule("loop-tensors", "Tensors of a loop body end with the loop", MIGRATION % "Rules for migrated loops", "?", lambda b: counted(b, after=b)),
    Rule("loop-in-no-reorder", "No dynamic loop is inside `no_reorder`", LOOPS, "?", lambda b: ordered(b, b)),
    Rule("while-condition", "The body of `while_loop` returns the next condition", MIGRATION % "Rules for migrated loops", "?", loop_result),
    Rule("branch-register", "`if` doesn't take a register", LOOPS, "?", branches),
    Rule("branch-tensor", "`if` doesn't take a tensor", GUIDE, "?", truth),
    Rule("range-register", "Static loops have static bounds", LOOPS, "?", lambda b: [None for _ in nl.affine_range(nisa.register_alloc(3) if b else 3)]),
    Rule("complex", "There are no complex numbers", "compiler/error-codes/EVRF004.rst", "?", launch=lambda b: launched(copied, zeros(8, 6, dtype=np.complex64 if b else np.float32))),
    Rule("wide", "There are no 64-bit types", GUIDE + "; NCC_ESFH002", "?", launch=lambda b: launched(copied, zeros(8, 6, dtype=np.int64 if b else np.int32))),
]
