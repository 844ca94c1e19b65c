"""Every instruction's work, by hand: cycles of its engine, bytes and pieces of DMA, operations.

Figures are those of the documents that `nki_dist/arch` names: 64 cycles between two instructions of
an engine and for reading an accumulator, 68 to reach the operands on Vector and Scalar, 150 to
start one on GpSimd, 15 from one matmul to the next, 4 passes of a float32 matmul,
DMA that computes at half, transposes at 0.9 (from HBM) and 0.5 (from SBUF) of the rate of a copy.
Tiles have 30 partitions, and more elements per partition than 64 unless the row is about that.
"""

from __future__ import annotations

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.isa import INSTRUCTIONS
from tests.timing.costs.along_rows import RANDOM, REDUCTIONS, SELECTIONS
from tests.timing.costs.elementwise import ACTIVATIONS, ARITHMETIC, COPIES
from tests.timing.costs.products import PRODUCTS
from tests.timing.costs.rows import U32, Row, cost_of, sb
from tests.timing.costs.transfers import TRANSFERS

ROWS = [
    *COPIES, *ARITHMETIC, *ACTIVATIONS, *REDUCTIONS, *SELECTIONS, *RANDOM, *PRODUCTS, *TRANSFERS
]  # fmt: skip


SHORT = 2 * 31  # elements: less than the issue interval of that test
AT_LEAST = {
    "activation": lambda: nisa.activation(sb(SHORT), nl.exp, sb(SHORT)),
    "bn_stats": lambda: nisa.bn_stats(sb(6), sb(SHORT)),
    "dropout": lambda: nisa.dropout(sb(SHORT), sb(SHORT), 0.5),
    "language_math": lambda: nisa.language_math(sb(SHORT), nl.floor, sb(SHORT)),
    "max8": lambda: nisa.max8(sb(8), sb(SHORT)),
    "memset": lambda: nisa.memset(sb(SHORT), 0),
    "nc_find_index8": lambda: nisa.nc_find_index8(sb(8, dtype=U32), sb(SHORT), sb(8)),
    "nc_match_replace8": lambda: nisa.nc_match_replace8(sb(SHORT), sb(SHORT), sb(8), 0.0),
    "nc_stream_shuffle": lambda: nisa.nc_stream_shuffle(
        sb(SHORT, rows=32), sb(SHORT, rows=32), list(range(32))
    ),
    "range_select": lambda: nisa.range_select(
        sb(31), sb(31), nl.greater_equal, nl.less, sb(1), sb(1), reduce_res=sb(1)
    ),
    "rng": lambda: nisa.rng(sb(SHORT, dtype=U32)),
    "scalar_tensor_tensor": lambda: nisa.scalar_tensor_tensor(
        sb(31), sb(31), nl.subtract, 1.0, nl.multiply, sb(31)
    ),
    "select_reduce": lambda: nisa.select_reduce(
        sb(SHORT), sb(SHORT, dtype=nl.uint8), sb(SHORT), 1.0
    ),
    "tensor_copy_predicated": lambda: nisa.tensor_copy_predicated(
        sb(31), sb(31), sb(31, dtype=U32)
    ),
    "tensor_reduce": lambda: nisa.tensor_reduce(sb(1), nl.add, sb(SHORT), axis=1),
    "tensor_scalar": lambda: nisa.tensor_scalar(sb(SHORT), sb(SHORT), nl.multiply, 2.0),
    "tensor_scalar_cumulative": lambda: nisa.tensor_scalar_cumulative(
        sb(SHORT), sb(SHORT), nl.multiply, nl.add, 2.0
    ),
    "tensor_tensor_scan": lambda: nisa.tensor_tensor_scan(
        sb(31), sb(31), sb(31), 0.0, nl.multiply, nl.add
    ),
}


@pytest.mark.parametrize("opcode", AT_LEAST)
def test_an_instruction_keeps_its_engine_for_the_issue_interval(opcode):
    assert cost_of(opcode, AT_LEAST[opcode], min_issue_cycles=130).cycles == 130


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.opcode} {row.case}".strip())
def test_cost(row: Row):
    assert cost_of(row.opcode, row.issue, row.platform, row.cores) == row.cost


def test_every_instruction_is_here():
    """Collectives have the cost of their stages: test_collectives."""
    priced = {name for name, spec in INSTRUCTIONS.items() if spec.engines != ("cc",)}
    other = sorted({row.opcode for row in ROWS} ^ priced)
    assert not other, f"work out a Row by hand for {other}, in tests/timing/costs"
