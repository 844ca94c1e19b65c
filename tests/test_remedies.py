"""Wrong kernels of newcomers: what the error prints tells them what to change, once.

The text of each is `str(error)`: nobody looks at attributes of an exception that ends a program.
"""

import re

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import codes
from nki_dist.errors import NkiError
from tests.newcomers import X, output
from tests.refusals.page import rules

SQUARE = np.ones((128, 128), np.float32)
F32 = nl.float32


def sbuf(*shape, dtype=F32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def psum(*shape):
    return nl.ndarray(shape, dtype=F32, buffer=nl.psum)


def product(a, dst):
    tile = nl.load(a)
    nisa.nc_matmul(dst=dst, stationary=tile, moving=tile)
    return dst


def stores_from_psum(a):
    out = output(a)
    nisa.dma_copy(dst=out, src=product(a, psum(128, 128)))
    return out


def loads_into_psum(a):
    nisa.dma_copy(dst=psum(128, 128), src=a)
    return a


def multiplies_rows(a, b):
    left, right = nl.load(a), nl.load(b)
    nisa.nc_matmul(dst=psum(64, 48), stationary=left, moving=right)
    return a


def keeps_nine_banks(a):
    tiles = [product(a, nl.ndarray((128, 512), dtype=F32, buffer=nl.psum)[:, 0:128])]
    tiles += [product(a, psum(128, 512)[:, 0:128]) for _ in range(8)]
    total = sbuf(128, 128)
    nisa.memset(total, value=0)
    for tile in tiles:
        nisa.tensor_tensor(total, total, tile, nl.add)
    return a


def keeps_four_of_sbuf(a):
    tiles = [sbuf(128, 16384) for _ in range(4)]
    for tile in tiles:
        nisa.memset(tile, value=0)
    for tile in tiles:
        nisa.tensor_scalar(tile, tile, nl.add, 1.0)
    return a


def adds_to_nothing(x):
    total, out = sbuf(64, 32), output(x)
    nisa.tensor_tensor(total, total, nl.load(x), nl.add)
    nl.store(out, total)
    return out


def stores_nothing(x):
    out, _tile = output(x), nl.load(x)
    return out


def subtracts_a_column(x):
    tile, most = nl.load(x), sbuf(64, 1)
    nisa.tensor_reduce(most, nl.maximum, tile, 1)
    nisa.tensor_tensor(tile, tile, most, nl.subtract)
    return x


def adds_a_row(x):
    tile = nl.load(x)
    row = nl.load(x[0:1])
    nisa.tensor_tensor(tile, tile, row, nl.add)
    return x


def sums_over_rows(x):
    nisa.tensor_reduce(sbuf(1, 32), nl.add, nl.load(x), 0)
    return x


def two_pipes(x):
    me, tile = nl.program_id(0), nl.load(x)
    nisa.sendrecv(tile, sbuf(64, 32), 1 - me, 1 - me, pipe_id=3 + me)
    return x


def one_waits(x):
    if nl.program_id(0) == 1:
        nisa.core_barrier(x, (0, 1))
    return x


def each_waits_elsewhere(x):
    if nl.program_id(0) == 0:
        nisa.core_barrier(x, (0, 1))
    else:
        nisa.sendrecv(nl.load(x), sbuf(64, 32), 0, 0, pipe_id=3)
    return x


def two_widths(x):
    me = nl.program_id(0)
    tile = nl.load(x)[:, 0 : 8 + me]
    nisa.sendrecv(tile, sbuf(64, 8 + me), 1 - me, 1 - me, pipe_id=0)
    return x


def rows_by_tile(x):
    rows = sbuf(64, 1, dtype=nl.int32)
    nisa.iota(rows, [[1, 1]], 0, 1)
    return nl.load(x[rows])


def scales_a_register(x):
    for i in nl.dynamic_range(2):
        nl.load(x[nl.ds(i * 32, 32)])
    return x


CASES = {
    "register times 32": (
        scales_a_register,
        r"hint: let the loop count in steps, as nl.dynamic_range\(0, n \* 128, 128\) does",
        (X,),
    ),
    "a text": (
        lambda x: nl.load(x),
        r"src is 'x' of type str; allowed: a tensor(?s:.*)hint: pass an array as this argument",
        ("x",),
    ),
    "matmul into sbuf": (
        lambda a: product(a, sbuf(128, 128)),
        "hint: write to a tile with buffer=nl.psum, then copy that here with nisa.tensor_copy",
        (SQUARE,),
    ),
    "matmul of hbm": (
        lambda a: nisa.nc_matmul(dst=psum(128, 128), stationary=a, moving=a),
        r"hint: copy it into a tensor with buffer=nl.sbuf first \(nisa.dma_copy\), and pass that",
        (SQUARE,),
    ),
    "dma from psum": (
        stores_from_psum,
        r"hint: copy it into a tensor with buffer=nl.sbuf first \(nisa.tensor_copy\), and pass",
        (SQUARE,),
    ),
    "dma to psum": (
        loads_into_psum,
        "hint: write to a tile with buffer=nl.sbuf, then copy that here with nisa.tensor_copy",
        (SQUARE,),
    ),
    "matmul of rows": (
        multiplies_rows,
        r"hint: Pass \(K, M\) and \(K, N\): transpose one \(nisa.nc_transpose",
        (np.ones((64, 32), np.float32), np.ones((32, 48), np.float32)),
    ),
    "nine banks": (
        keeps_nine_banks,
        r"8 banks.*needs 18432 \(9 banks(?s:.*)hint: copy each result to SBUF .*\n  policy: check=",
        (SQUARE,),
    ),
    "sbuf full": (
        keeps_four_of_sbuf,
        "4 tensors like .* each 65536(?s:.*)hint: Use smaller tiles, .*\n  policy: check=",
        (SQUARE,),
    ),
    "accumulator": (
        adds_to_nothing,
        r"hint: write all of total .* nisa.memset\(total, value=0\)\n  policy: check=",
        (X,),
    ),
    "no store": (
        stores_nothing,
        r"hint: store the result to out \(nl.store, nisa.dma_copy\)\n  policy: check=",
        (X,),
    ),
    "column": (
        subtracts_a_column,
        r"hint: to use data2 for all, write most.broadcast\(1, 32\), or nisa.tensor_scalar\(",
        (X,),
    ),
    "row": (
        adds_a_row,
        r"hint: to use data2 for all, write nl.broadcast_to\(row, \(64, 32\)\)",
        (X,),
    ),
    "sum over partitions": (
        sums_over_rows,
        "hint: Name free dimensions, from 1 on; nisa.tensor_partition_reduce goes along partitions",
        (X,),
    ),
    "one dimension": (
        lambda x: sbuf(32),
        r"hint: write \(32, 1\) for one element per row, \(1, 32\) for one row",
        (X,),
    ),
    "rows by tile": (rows_by_tile, r"tensors index through .ap\(vector_offset=...\)", (X,)),
    "a list of numbers": (
        lambda x: nl.load(x),
        r"Lists stay lists: launch the kernel with np.array\(...\) of it",
        ([[1.0, 2.0]],),
    ),
    "two pipes": (
        two_pipes,
        r"\(pipe_id 3, (?s:.*)\(pipe_id 4, (?s:.*)"
        "hint: make pipe_id 3 and pipe_id 4 the same number in both calls",
        (X,),
    ),
    "one waits": (
        one_waits,
        r"hint: let core 0 run the nisa.core_barrier at .*remedies.py:\d+ with core 1",
        (X,),
    ),
    "each waits elsewhere": (
        each_waits_elsewhere,
        r"hint: let both cores run the nisa.core_barrier at .* and the nisa.sendrecv at .* one",
        (X,),
    ),
    "two widths": (two_widths, "hint: make shape the same in both calls", (X,)),
}
TWO = {
    "two pipes",
    "one waits",
    "each waits elsewhere",
    "two widths",
}


@pytest.mark.parametrize("case", CASES)
def test_the_text_says_what_to_change(case):
    kernel, remedy, arguments = CASES[case]
    with pytest.raises(NkiError, match=remedy) as caught:
        nki.simulate(nki.jit(kernel)[2 if case in TWO else 1])(*arguments)
    assert str(caught.value).count("hint: ") <= 1


def test_what_the_hints_say_works():
    @nki.jit
    def softened(x):
        tile, most, out = nl.load(x), sbuf(64, 1), output(x)
        row = nl.load(x[0:1])
        nisa.tensor_reduce(most, nl.maximum, tile, 1)
        nisa.tensor_tensor(tile, tile, most.broadcast(1, 32), nl.subtract)
        nisa.tensor_tensor(tile, tile, nl.broadcast_to(row, (64, 32)), nl.add)
        nl.store(out, tile)
        return out

    expected = X - X.max(axis=1, keepdims=True) + X[0:1]
    np.testing.assert_array_equal(nki.simulate(softened)(X), expected)


def test_names_that_modules_lack():
    for module, name, words in (
        (nl, "softmaxx", "Did you mean: 'softmax'"),
        (nisa, "nc_matmull", "Did you mean: 'nc_matmul'"),
        (nisa, "tensor_add", "Arithmetic is op= of tensor_tensor"),
        (nl, "einsum", r"dir\(nl\) lists"),
    ):
        assert not hasattr(module, name)
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'. {words}") as caught:
            getattr(module, name)
        assert caught.value.obj is None  # else interpreters print a suggestion behind ours


INSTEAD = re.compile(
    r"allowed|must|at most|only|needs|[Uu]se |[Ww]rite |[Mm]ove |[Pp]ass |[Cc]opy |[Rr]emove |"
    r"[Ss]elect |[Cc]ompute |[Aa]llocate |[Uu]npack |give |its parameters are|is filled with"
)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.name)
def test_refusals_say_what_to_do_once(rule):
    try:
        found = rule.run(bad=True)[0]
    except NkiError as error:
        found = error
    text = str(found)
    remedy = text.partition("hint: ")[2]
    assert remedy or INSTEAD.search(text), text
    assert text.count("hint: ") == bool(remedy)
    assert remedy.strip(". ").lower() not in found.message.lower() or not remedy


def test_kinds_that_say_it_themselves_print_no_remedy():
    assert codes.CODES["outside-kernel"].printed == "" and codes.CODES["psum-bank"].printed
