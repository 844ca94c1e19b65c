"""Kernels that are wrong in one way each, with what has to be said of them.

`WRONG` has, by name: the kernel, its reference, the cases, the code of the failure or the type of
the exception, a pattern that its text must match, and further arguments of check_kernel.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.testing import Case, Limits, integers


class Wrong(NamedTuple):
    kernel: Any
    reference: Callable[..., Any]
    cases: Any
    kind: str
    pattern: str
    options: Mapping[str, Any] = MappingProxyType({})


def output(x: Any, dtype: Any = None) -> Any:
    return nl.ndarray(x.shape, dtype=dtype or x.dtype, buffer=nl.shared_hbm)


def blocks(rows: int, size: int = 128) -> list[slice]:
    return [slice(n, min(n + size, rows)) for n in range(0, rows, size)]


def doubled(x: Any) -> Any:
    return 2 * x


# ---- blocks and tails ---------------------------------------------------------------------------


@nki.jit
def forgets_the_tail(x):
    out = output(x)
    for n in range(x.shape[0] // 128):
        rows = slice(n * 128, n * 128 + 128)
        nl.store(out[rows], nl.multiply(nl.load(x[rows]), 2.0))
    return out


@nki.jit
def last_block_shifted(x):
    """The tail is computed from the wrong rows."""
    out = output(x)
    for rows in blocks(x.shape[0]):
        size = rows.stop - rows.start
        nl.store(out[rows], nl.multiply(nl.load(x[0:size] if size < 128 else x[rows]), 2.0))
    return out


@nki.jit
def skips_columns(x):
    """An unwritten gap in the middle, seen by integers, too, which have no NaN."""
    out = output(x)
    for columns in (slice(0, 10), slice(12, x.shape[1])):
        nl.store(out[:, columns], nl.load(x[:, columns]))
    return out


# ---- memory -------------------------------------------------------------------------------------


@nki.jit
def stores_nothing(x):
    nl.load(x)
    return output(x)


@nki.jit
def overwrites_its_input(x):
    nl.store(x, nl.multiply(nl.load(x), 2.0))
    out = output(x)
    nl.store(out, nl.load(x))
    return out


@nki.jit
def stores_its_input_back(x):
    tile = nl.load(x)
    nl.store(x, tile)
    out = output(x)
    nl.store(out, nl.multiply(tile, 2.0))
    return out


@nki.jit
def updates_the_wrong_rows(cache, x):
    """To be stored at rows 4 to 7."""
    nl.store(cache[3:7], nl.load(x))


def cache_reference(cache: Any, x: Any) -> None:
    cache[4:8] = x


@nki.jit
def keeps_everything(x):
    """All of x alive at once, several times."""
    out = output(x)
    tiles = [nl.multiply(nl.load(x), float(n)) for n in range(5)]
    total = tiles[0]
    for tile in tiles[1:]:
        total = nl.add(total, tile)
    nl.store(out, total)
    return out


# ---- two cores ----------------------------------------------------------------------------------


@nki.jit
def race(x):
    me, half = nl.program_id(0), x.shape[0] // 2
    between = output(x)
    out = output(x)
    for n in range(me, 2, nl.num_programs(0)):
        nl.store(
            between[n * half : n * half + half],
            nl.multiply(nl.load(x[n * half : n * half + half]), 2.0),
        )
    for n in range(me, 2, nl.num_programs(0)):
        other = half - n * half
        nl.store(out[other : other + half], nl.load(between[other : other + half]))
    return out


@nki.jit
def both_cores_the_first_half(x):
    """Right on one core; on two the second one adds its number."""
    out = output(x)
    half = x.shape[0] // nl.num_programs(0)
    rows = slice(nl.program_id(0) * half, nl.program_id(0) * half + half)
    nl.store(out[rows], nl.multiply(nl.load(x[rows]), (2.0 + nl.program_id(0))))
    return out


@nki.jit
def waits_for_ever(x):
    """Core 1 waits for what core 0 never sends."""
    tile = nl.load(x)
    if nl.num_programs(0) == 2 and nl.program_id(0) == 1:
        nisa.sendrecv(src=tile, dst=tile, send_to_rank=0, recv_from_rank=0, pipe_id=0)
    out = output(x)
    if nl.program_id(0) == 0:
        nl.store(out, nl.multiply(tile, 2.0))
    return out


# ---- values -------------------------------------------------------------------------------------


def row_sums(x: Any) -> Any:
    return x.sum(axis=1, keepdims=True)


@nki.jit
def through_bfloat16(x):
    out = output(x)
    tile = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=nl.load(x))
    nl.store(out, nl.multiply(tile, 2.0))
    return out


@nki.jit
def no_maximum_subtracted(x):
    """A softmax whose exponentials overflow."""
    e = nl.exp(nl.load(x))
    out = output(x)
    nl.store(out, nl.divide(e, nl.sum(e, axis=1, keepdims=True)))
    return out


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@nki.jit
def swallows_nan(x):
    tile = nl.load(x)
    out = output(x)
    nl.store(out, nl.where(nl.equal(tile, tile), tile, nl.zeros(x.shape, x.dtype)))
    return out


@nki.jit
def adds_a_little(x):
    """Wrong by less than what is typical, in one element."""
    out = output(x)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    nl.store(out[3:4, 5:6], nl.multiply(nl.load(x[3:4, 5:6]), 2.001))
    return out


# ---- what is returned ---------------------------------------------------------------------------


@nki.jit
def returns_float32(x):
    out = output(x, nl.float32)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


@nki.jit
def returns_a_row(x):
    total = nl.sum(nl.load(x), axis=1, keepdims=True)
    out = nl.ndarray((1, x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(x.shape[0]):
        nl.store(out[0:1, n : n + 1], nl.load(x[n : n + 1, 0:1]))
    nl.store(out[0:1, 0:1], total[0:1, 0:1])
    return out


@nki.jit
def returns_one_of_two(x):
    out = output(x)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    return out


@nki.jit
def returns_its_input(x):
    return x


# ---- cheating, and state ------------------------------------------------------------------------

SEEN: list[np.ndarray] = []


def remembering(x: Any) -> Any:
    """A reference whose first answer a kernel finds."""
    SEEN.append(np.asarray(2 * x, np.float32))
    return 2 * x


@nki.jit
def returns_the_first_answer(x):
    out = output(x)
    answer = SEEN[0] if SEEN else np.zeros(x.shape, np.float32)
    nl.store(out, nl.load(nl.shared_constant(answer)))
    return out


@nki.jit
def constant_answer(x):
    out = output(x)
    nl.store(out, nl.full(x.shape, 0.5, x.dtype))
    return out


COUNTER = itertools.count()


@nki.jit
def counts_its_traces(x):
    out = output(x)
    nl.store(out, nl.multiply(nl.load(x), 2.0))
    nl.store(out[0:1, 0:1], nl.full((1, 1), float(next(COUNTER)), x.dtype))
    return out


# ---- too much -----------------------------------------------------------------------------------


@nki.jit
def traced_for_ever(x):
    n = 0
    while n >= 0:
        with contextlib.suppress(Exception):  # a kernel that swallows what it can
            n += 1
    return x


@nki.jit
def runs_for_ever(x):
    one, register = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf), nisa.register_alloc()
    nisa.memset(dst=one, value=1)
    nisa.register_load(register, one)

    def body(value):
        nisa.register_load(value, one)
        return value

    nl.while_loop(register, body)
    return x


@nki.jit
def element_by_element(x):
    out = output(x)
    for n in range(x.shape[1]):
        nl.store(out[:, n : n + 1], nl.multiply(nl.load(x[:, n : n + 1]), 2.0))
    return out


@nki.jit
def through_hbm(x):
    out, between = output(x), output(x)
    nl.store(between, nl.load(x))
    nl.store(out, nl.multiply(nl.load(between), 2.0))
    return out


@nki.jit
def raises_by_itself(x):
    raise ValueError("no such luck")


@nki.jit
def ends_the_program(x):
    raise SystemExit(0)


@nki.jit
def out_of_the_table(table, rows):
    """Doesn't mind indices beyond the table."""
    out = nl.ndarray((rows.shape[0], table.shape[1]), dtype=table.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(out.shape, dtype=table.dtype, buffer=nl.sbuf)
    index = nl.load(rows)
    nisa.dma_copy(
        dst=tile,
        src=table.ap(
            [[table.shape[1], rows.shape[0]], [1, table.shape[1]]],
            vector_offset=index,
            indirect_dim=0,
        ),
    )
    nl.store(out, tile)
    return out


def x_of(*shapes: tuple[int, ...], **options: Any) -> list[Case]:
    return [Case({"x": shape}, **options) for shape in shapes]


WRONG = {
    "tail": Wrong(
        forgets_the_tail,
        doubled,
        x_of((128, 8), (200, 8)),
        "never-stored",
        r"576 of 1,600 elements.*\[128:200, 0:8\]",
    ),
    "wrong tail": Wrong(
        last_block_shifted,
        doubled,
        x_of((256, 8), (200, 8)),
        "wrong-value",
        r"all of them in \[128:200, 0:8\]",
    ),
    "gap": Wrong(
        skips_columns,
        lambda x: x,
        x_of((60, 30), dtypes="int32"),
        "never-stored",
        r"120 of 1,800 elements.*\[0:60, 10:12\]",
    ),
    "nothing stored": Wrong(
        stores_nothing,
        doubled,
        x_of((8, 3)),
        "UninitializedReadError",
        "24 of 24|UninitializedReadError",
    ),
    "input overwritten": Wrong(
        overwrites_its_input,
        doubled,
        x_of((8, 3)),
        "input-changed",
        r"24 elements of argument x changed(?s:.*)writes=\('x',\)",
    ),
    "input stored": Wrong(
        stores_its_input_back,
        doubled,
        x_of((8, 3)),
        "input-changed",
        "stores to argument x, here with the values it had",
    ),
    "update": Wrong(
        updates_the_wrong_rows,
        cache_reference,
        [Case({"cache": (9, 4), "x": (4, 4)})],
        "wrong-value",
        r"of argument cache differ.*\[3:8, 0:4\]",
        {"writes": ("cache",)},
    ),
    "race": Wrong(race, doubled, x_of((8, 4)), "RaceError", "RaceError", {"lnc": 2}),
    "two cores": Wrong(
        both_cores_the_first_half,
        doubled,
        x_of((8, 4)),
        "wrong-value",
        r"\[4:8, 0:4\](?s:.*)1\.5 times.*on 1 core the same arguments are right",
        {"lnc": (1, 2)},
    ),
    "deadlock": Wrong(
        waits_for_ever, doubled, x_of((8, 4)), "DeadlockError", "DeadlockError", {"lnc": (1, 2)}
    ),
    "bfloat16 tile": Wrong(
        through_bfloat16, doubled, x_of((16, 30)), "wrong-value", "elements of output differ"
    ),
    "overflow": Wrong(
        no_maximum_subtracted, softmax, x_of((16, 30)), "wrong-value", "got nan, the reference"
    ),
    "NaN": Wrong(
        swallows_nan,
        lambda x: x,
        x_of((16, 30), data="special"),
        "wrong-value",
        "finite where NaN is expected",
    ),
    "one element": Wrong(
        adds_a_little,
        doubled,
        x_of((16, 30)),
        "wrong-value",
        r"1 of 480 elements of output.*output\[3, 5\]",
    ),
    "dtype": Wrong(
        returns_float32,
        doubled,
        x_of((16, 30), dtypes="bfloat16"),
        "wrong-dtype",
        "output is float32; allowed: bfloat16",
    ),
    "shape": Wrong(
        returns_a_row,
        row_sums,
        x_of((16, 1)),
        "wrong-shape",
        r"shape \(1, 16\), the reference's \(16, 1\)",
    ),
    "number": Wrong(
        returns_one_of_two,
        lambda x: (2 * x, 3 * x),
        x_of((16, 3)),
        "wrong-structure",
        r"returns one array, the reference 2 arrays",
    ),
    "input returned": Wrong(
        returns_its_input, doubled, x_of((16, 3)), "wrong-value", "1/2 of what"
    ),
    "remembered": Wrong(
        returns_the_first_answer,
        remembering,
        x_of((16, 3)),
        "wrong-value",
        "differ",
        {"seeds": (0, 1), "data": ("normal",)},
    ),
    "constant": Wrong(
        constant_answer, doubled, x_of((16, 3)), "wrong-value", "all of them are 0.5"
    ),
    "counter": Wrong(
        counts_its_traces, doubled, x_of((16, 3)), "program-varies", "two traces with equal shapes"
    ),
    "endless trace": Wrong(
        traced_for_ever,
        doubled,
        x_of((16, 3)),
        "timeout",
        "tracing the kernel: not done after 0.3 s",
        {"timeout": 0.3},
    ),
    "slow": Wrong(
        element_by_element,
        doubled,
        x_of((16, 40)),
        "too-slow",
        r"us simulated; allowed: 6\.000 us",
        {"limits": Limits(time_us=6)},
    ),
    "SBUF": Wrong(
        keeps_everything,
        lambda x: 10 * x,
        x_of((16, 500)),
        "too-much-memory",
        r"bytes of SBUF.*allowed: 2,500",
        {"limits": Limits(sbuf_bytes=2500)},
    ),
    "HBM": Wrong(
        through_hbm,
        doubled,
        x_of((16, 50)),
        "too-much-memory",
        r"6,400 bytes of HBM.*allowed: 3,200",
        {"limits": Limits(hbm_bytes=3200)},
    ),
    "exception": Wrong(
        raises_by_itself, doubled, x_of((16, 50)), "ValueError", "ValueError: no such"
    ),
    "exit": Wrong(ends_the_program, doubled, x_of((16, 50)), "SystemExit", "SystemExit"),
    "index": Wrong(
        out_of_the_table,
        lambda table, rows: table[rows[:, 0] % 20],
        [Case({"table": (20, 6), "rows": (16, 1)}, {"rows": "int32"}, {"rows": integers(0, 40)})],
        "OutOfBoundsError",
        "OutOfBoundsError",
    ),
}
