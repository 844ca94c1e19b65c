"""Documented constraints of matmuls and DMA that no other test pairs.

The rest is in test_nc_matmul, test_mx, test_transposes, test_dma_compute, test_vector_offsets and
test_indirection_matmul.
"""

from __future__ import annotations

import pytest
from documented import BF16, E4M3, E5M2, F32, FN, I32, U32, Rule, check, hbm, ps, sb

import nki_dist.isa as nisa
import nki_dist.language as nl

CMD, DGE, ENGINE = nisa.reduce_cmd, nisa.dge_mode, nisa.engine


def matmul(k=32, m=16, n=20, dst=F32, left=BF16, right=BF16, places=(sb, sb, ps), **options):
    a, b = places[0](k, m, dtype=left), places[1](k, n, dtype=right)
    nisa.nc_matmul(places[2](m, n, dtype=dst), a, b, **options)


def double(left=E4M3, right=E5M2, **options):
    a, b = sb(64, 2, 16, dtype=left), sb(64, 2, 20, dtype=right)
    nisa.nc_matmul(ps(16, 20), a, b, perf_mode="double_row", **options)


def mx(dst=F32, place=ps, scales=sb, data=sb, rows=32, columns=16):
    kind = nl.float8_e4m3fn_x4
    a, b = data(rows, columns, dtype=kind), data(rows, 20, dtype=kind)
    used = (rows - 1) // 32 * 32 + 4  # 4 partitions of each quadrant
    sa, sc = (scales(used, n, dtype=nl.uint8) for n in (columns, 20))
    nisa.nc_matmul_mx(place(columns, 20, dtype=dst), a, b, sa, sc)


MATMUL = [
    Rule(
        "stationary is in SBUF",
        matmul,
        lambda: matmul(places=(ps, sb, ps)),
        "stationary is in psum",
    ),
    Rule("moving is in SBUF", matmul, lambda: matmul(places=(sb, ps, ps)), "moving is in psum"),
    Rule(
        "4096 moving elements with a float32 dst on v4",
        lambda: matmul(n=4096),
        lambda: nisa.nc_matmul(
            ps(16, 4096).expand_dim(1).broadcast(1, 2), sb(32, 16), sb(32, 8192)
        ),
        "moving has 8192 elements .* at most 4096",
        "trn3",
    ),
    Rule(
        "8192 moving elements with a bfloat16 dst on v4",
        lambda: matmul(n=8192, dst=BF16),
        lambda: nisa.nc_matmul(
            ps(16, 8192, dtype=BF16).expand_dim(1).broadcast(1, 2),
            sb(32, 16, dtype=BF16),
            sb(32, 16384, dtype=BF16),
        ),
        "moving has 16384 elements .* at most 8192",
        "trn3",
    ),
    Rule(
        "double_row takes float8_e4m3fn from v4 on",
        lambda: double(FN, E5M2),
        lambda: double(FN, E5M2),
        "float8_e4m3fn in nc_matmul needs NeuronCore-v4",
        kept_on="trn3",
    ),
    Rule(
        "double_row doesn't mix the two e4m3 formats",
        lambda: double(FN, FN),
        lambda: double(FN, E4M3),
        "e4m3 formats can't be mixed",
        "trn3",
    ),
    Rule(
        "start_column below 128",
        lambda: matmul(tile_size=(32, 32), tile_position=(0, 96)),
        lambda: matmul(tile_size=(32, 32), tile_position=(0, 128)),
        "tile_position column 128",
    ),
    Rule(
        "start_column is a multiple of column_size",
        lambda: matmul(tile_size=(32, 64), tile_position=(0, 64)),
        lambda: matmul(tile_size=(32, 64), tile_position=(0, 32)),
        "tile_position column 32; allowed: multiples",
    ),
    Rule("mx: dst is in PSUM", lambda: mx(BF16), lambda: mx(place=sb), "dst is in sbuf", "trn3"),
    Rule("mx: data is in SBUF", mx, lambda: mx(data=ps), "stationary is in psum", "trn3"),
    Rule("mx: scales are in SBUF", mx, lambda: mx(scales=ps), "scale is in psum", "trn3"),
    Rule(
        "mx: at most 128 stationary columns",
        lambda: mx(columns=128),
        lambda: mx(columns=130),
        "130 partitions in a psum tensor",
        "trn3",
    ),
    Rule(
        "mx: partitions are a multiple of 32",
        lambda: mx(rows=96),
        lambda: mx(rows=48),
        "48",
        "trn3",
    ),
]


def copy(dst=sb, src=sb, to=(8, 6), dtype=F32, **options):
    nisa.dma_copy(dst(*to), src(8, 6, dtype=dtype), **options)


def gathered(index, table=hbm, **options):
    rows, offsets = table(64, 6), index()
    nisa.memset(offsets, 3)
    nisa.dma_copy(
        sb(8, 6), rows.ap([[6, 8], [1, 6]], vector_offset=offsets, indirect_dim=0), **options
    )


DMA = [
    Rule("dma_copy: SBUF or HBM, dst", lambda: copy(hbm), lambda: copy(ps), "dst is in psum"),
    Rule(
        "dma_copy: SBUF or HBM, src", lambda: copy(sb, hbm), lambda: copy(sb, ps), "src is in psum"
    ),
    Rule(
        "dma_copy: as many elements",
        lambda: copy(to=(6, 8)),
        lambda: copy(to=(6, 9)),
        r"dst has 54 elements \(shape \(6, 9\)\), src 48",
    ),
    Rule(
        "dma_copy: any types",
        lambda: copy(dtype=I32),
        lambda: copy(dtype=nl.float8_e5m2_x4),
        "DMA doesn't convert packed",
    ),
    Rule(
        "dma_copy: priority 0 to 3",
        lambda: (copy(priority=0), copy(priority=3)),
        lambda: copy(priority=4),
        "priority=4; allowed: 0 to 3",
        "trn3",
    ),
    Rule(
        "dma_copy: priority from v4 on",
        lambda: copy(priority=1),
        lambda: copy(priority=1),
        "priority needs NeuronCore-v4",
        kept_on="trn3",
    ),
    Rule(
        "dma_copy: hwdge from v3 on",
        lambda: copy(dge_mode=DGE.hwdge),
        lambda: copy(dge_mode=DGE.hwdge),
        "dge_mode.hwdge needs NeuronCore-v3",
        "trn1",
        kept_on="trn2",
    ),
    Rule(
        "dma_copy: engine is for hwdge",
        lambda: copy(dge_mode=DGE.hwdge, engine=ENGINE.sync),
        lambda: copy(dge_mode=DGE.swdge, engine=ENGINE.sync),
        "engine=sync is only for dge_mode.hwdge",
    ),
    Rule(
        "dma_copy: engine sync or scalar",
        lambda: copy(dge_mode=DGE.hwdge, engine=ENGINE.scalar),
        lambda: copy(dge_mode=DGE.hwdge, engine=ENGINE.vector),
        "engine=vector; allowed",
    ),
    Rule(
        "dma_copy: the indexed tensor is in HBM",
        lambda: gathered(lambda: sb(8, 1, dtype=U32)),
        lambda: gathered(lambda: sb(8, 1, dtype=U32), table=sb),
        "HBM",
    ),
    Rule(
        "dma_copy: the indices are in SBUF",
        lambda: gathered(lambda: sb(8, 1, dtype=I32)),
        lambda: gathered(lambda: hbm(8, 1, dtype=I32)),
        "SBUF|sbuf",
    ),
    Rule(
        "dma_copy: one kind of offset at a time",
        lambda: hbm(64, 6).ap([[6, 8], [1, 6]], scalar_offset=sb(1, 1, dtype=I32)),
        lambda: hbm(64, 6).ap(
            [[6, 8], [1, 6]],
            scalar_offset=sb(1, 1, dtype=I32),
            vector_offset=sb(8, 1, dtype=I32),
        ),
        "scalar_offset|both",
    ),
    Rule(
        "dma_compute: SBUF or HBM",
        lambda: nisa.dma_compute(hbm(4, 6), [sb(4, 6), hbm(4, 6)], nl.add),
        lambda: nisa.dma_compute(sb(4, 6), [sb(4, 6), ps(4, 6)], nl.add),
        "psum",
    ),
    Rule(
        "dma_compute: 16 sources",
        lambda: nisa.dma_compute(sb(4, 6), [sb(4, 6) for _ in range(16)], nl.add),
        lambda: nisa.dma_compute(sb(4, 6), [sb(4, 6) for _ in range(17)], nl.add),
        "17 tensors",
    ),
]


@pytest.mark.parametrize("rule", [*MATMUL, *DMA], ids=lambda r: r.says)
def test_kept_and_broken(rule: Rule) -> None:
    check(rule)
