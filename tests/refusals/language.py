"""Python in kernels, arguments, results, loops."""

from __future__ import annotations

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import Rule, made, sb, zeros

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
        return tile if result else None

    nl.fori_loop(0, nisa.register_alloc(4) if arithmetic else 4, body, step=step)
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
    if register if b else True:
        nisa.memset(sb(8, 6), value=0.0)


def truth(b):
    tile = made(8, 6)
    if tile if b else True:
        nisa.memset(tile, value=0.0)


RULES = [
    Rule(
        "keyword-only",
        "A kernel has no keyword-only parameters (`*`)",
        MIGRATION % "Remove keyword-only argument separator",
        "AWS's compiler doesn't take them in kernels",
        launch=lambda b: launched(keyword_only if b else with_option, zeros(8, 6), scale=2.0),
    ),
    Rule(
        "identity",
        "Values are compared with `==`, not with `is`",
        MIGRATION % "Replace is / is not",
        "AWS's compiler doesn't know `is`",
        pair=(compares_by_value, compares_identity),
        warns="published kernels do it",
        code="python-identity",
    ),
    Rule(
        "dict-keys",
        "Keys of a dict are strings",
        GUIDE,
        "dicts of kernels have strings as keys",
        pair=(string_keys, integer_keys),
    ),
    Rule(
        "list-argument",
        "A list isn't a kernel's argument; a tuple is",
        MIGRATION % "Replace list kernel arguments with tuples",
        "the migration guide says that lists can't be arguments of kernels",
        launch=lambda b: launched(takes, zeros(8, 6), [1, 1] if b else (1, 1)),
        warns="nki_dist's interface promises it",
        code="argument-list",
    ),
    Rule(
        "class-argument",
        "An object that is an argument is an `NKIObject`",
        GUIDE,
        "AWS's compiler imports no other classes",
        launch=lambda b: launched(takes, zeros(8, 6), Plain(1) if b else Struct(1)),
        warns="nki_dist's interface promises it",
        code="argument-class",
    ),
    Rule(
        "private-result",
        "A kernel returns tensors in shared_hbm",
        MIGRATION % "Output tensors must use nl.shared_hbm",
        "the kernel returned",
        launch=returns_private,
        warns="the page of nonzero_with_count does it",
        code="return-private",
    ),
    Rule(
        "sbuf-result",
        "A kernel returns no tile",
        "nki/get-started/about/memory-hierarchy-overview.rst",
        "copy it there with nisa.dma_copy and return that",
        launch=lambda b: launched((lambda x: nl.load(x)) if b else copied, zeros(8, 6)),
    ),
    Rule(
        "number-result",
        "A kernel returns tensors",
        GUIDE,
        "a tensor in shared_hbm, a tuple, list or dict of them, or nothing",
        launch=lambda b: launched((lambda x: 17) if b else copied, zeros(8, 6)),
    ),
    Rule(
        "grid-one-number",
        "A launch grid is one number",
        LNC,
        "Grids of instances are Beta 1's",
        launch=lambda b: launched(copied, zeros(8, 6), grid=(1, 1) if b else 1),
        warns="nki_dist's interface promises it",
        code="grid-of-instances",
    ),
    Rule(
        "grid-lnc",
        "A launch has at most the logical core's physical cores",
        LNC + "; NCC_EARG001",
        "for more cores use nki.World(ranks=..., lnc=...)",
        launch=lambda b: launched(lambda x: None, zeros(8, 6), grid=8 if b else 2),
    ),
    Rule(
        "grid-trn1",
        "On trn1 a logical core has one physical core",
        LNC + "; NCC_EARG001",
        "for more cores use nki.World(ranks=..., lnc=...)",
        launch=lambda b: launched(lambda x: None, zeros(8, 6), grid=2 if b else 1, platform="trn1"),
    ),
    Rule(
        "loop-step",
        "The step of a dynamic loop is positive",
        LOOPS,
        "must be a positive int known when the kernel is traced",
        lambda b: counted(b, step=0 if b else 1),
    ),
    Rule(
        "loop-step-register",
        "The step of a dynamic loop is an int",
        LOOPS,
        "must be a positive int known when the kernel is traced",
        lambda b: counted(b, step=nisa.register_alloc(1) if b else 1),
    ),
    Rule(
        "loop-variable",
        "The loop variable isn't written",
        GUIDE,
        "write to a copy",
        lambda b: counted(b, write=b),
    ),
    Rule(
        "loop-arithmetic",
        "A loop variable that is a register has no arithmetic",
        MIGRATION % "Rules for migrated loops",
        "arithmetic of a register: its value is only known when the kernel runs. Registers can",
        lambda b: counted(b, arithmetic=b),
    ),
    Rule(
        "loop-result",
        "The body of `fori_loop` returns nothing",
        MIGRATION % "Rules for migrated loops",
        "Write what the loop makes to tensors that are allocated before it",
        lambda b: counted(b, result=b),
    ),
    Rule(
        "loop-tensors",
        "Tensors of a loop body end with the loop",
        MIGRATION % "Rules for migrated loops",
        "Allocate it before the loop and write to it inside",
        lambda b: counted(b, after=b),
    ),
    Rule(
        "loop-in-no-reorder",
        "No dynamic loop is inside `no_reorder`",
        LOOPS,
        "dynamic loops aren't supported inside nl.no_reorder",
        lambda b: ordered(b, b),
    ),
    Rule(
        "while-condition",
        "The body of `while_loop` returns the next condition",
        MIGRATION % "Rules for migrated loops",
        "the body of while_loop must return the next condition register, got 1",
        loop_result,
    ),
    Rule(
        "branch-register",
        "`if` doesn't take a register",
        LOOPS,
        "Python can't branch on a register: its value is only known when the kernel runs. Use",
        branches,
    ),
    Rule(
        "branch-tensor",
        "`if` doesn't take a tensor",
        GUIDE,
        "Python can't branch on the tensor",
        truth,
    ),
    Rule(
        "range-register",
        "Static loops have static bounds",
        LOOPS,
        "use as a Python index of a register: its value is only known when the kernel runs.",
        lambda b: [None for _ in nl.affine_range(nisa.register_alloc(3) if b else 3)],
    ),
    Rule(
        "complex",
        "There are no complex numbers",
        "compiler/error-codes/EVRF004.rst",
        "which NKI has no type for",
        launch=lambda b: launched(copied, zeros(8, 6, dtype=np.complex64 if b else np.float32)),
    ),
    Rule(
        "wide",
        "There are no 64-bit floats",
        GUIDE + "; NCC_ESFH002",
        "which NKI has no type for",
        launch=lambda b: launched(copied, zeros(8, 6, dtype=np.float64 if b else np.float32)),
    ),
]
