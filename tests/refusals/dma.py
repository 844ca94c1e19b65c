"""DMA: copies, transposes, sums in flight."""

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import BF16, E5M2_X4, F32, I32, U32, Rule, hbm, made, ps, sb

COPY = "nki/api/nki/isa (dma_copy)"
TRANSPOSE = "nki/api/nki/isa (dma_transpose)"
COMPUTE = "nki/api/nki/isa (dma_compute)"
DGE = "nki/deep-dives/nki-dge.rst"
NOTES3 = "release-notes/components/nki.rst (0.3.0)"
HW, SW = nisa.dge_mode.hwdge, nisa.dge_mode.swdge


def full(*shape, dtype=F32):
    out = hbm(*shape, dtype=dtype)
    nisa.dma_copy(out, made(*shape, dtype=dtype))
    return out


def turned(shape=(16, 128), dst=None, dtype=BF16, dst_type=None, **options):
    nisa.dma_transpose(
        sb(*(dst or shape[::-1]), dtype=dst_type or dtype),
        full(*shape, dtype=dtype)
        if shape[0] <= 128 and len(shape) == 2
        else hbm(*shape, dtype=dtype),
        **options,
    )


def summed(count=2, scales=None, op=nl.add, sizes=(8, 8), place=hbm, **options):
    srcs = []
    for _ in range(count):
        srcs.append(full(64, sizes[1]))
    nisa.dma_compute(place(64, sizes[0]), srcs, op, scales=scales, **options)


def rows(n=32, dtype=U32, columns=1):
    return made(n, columns, dtype=dtype)


def gather_added(**options):
    total = made(32, 16)
    table = full(64, 16).ap([[16, 32], [1, 16]], vector_offset=rows(), indirect_dim=0)
    nisa.dma_compute(total, [table, total], nl.add, **options)


def gathered(src=hbm, indices=None, n=32, **options):
    nisa.dma_copy(
        sb(n, 16),
        src(64, 16).ap([[16, n], [1, 16]], vector_offset=indices or rows(n), indirect_dim=0),
        **options,
    )


RULES = [
    Rule(
        "dma-psum-src",
        "DMA doesn't read PSUM: copy to SBUF first",
        NOTES3,
        "src is in psum",
        lambda b: nisa.dma_copy(hbm(8, 8), made(8, 8, buffer=nl.psum if b else nl.sbuf)),
    ),
    Rule(
        "dma-psum-dst",
        "DMA doesn't write PSUM",
        COPY,
        "dst is in psum",
        lambda b: nisa.dma_copy((ps if b else sb)(8, 8), full(8, 8)),
    ),
    Rule(
        "dma-elements",
        "Both sides of a copy have as many elements",
        COPY,
        "dma_copy needs as many in both",
        lambda b: nisa.dma_copy(sb(8, 7 if b else 8), full(8, 8)),
    ),
    Rule(
        "dma-hwdge-type",
        "With `dge_mode.hwdge` both sides have one dtype",
        NOTES3,
        "view one as the other with .view(), or let dge_mode.swdge convert",
        lambda b: nisa.dma_copy(sb(8, 8, dtype=BF16 if b else F32), full(8, 8), dge_mode=HW),
    ),
    Rule(
        "dma-hwdge-v3",
        "`dge_mode.hwdge` needs NeuronCore-v3",
        DGE,
        "dge_mode.hwdge needs NeuronCore-v3",
        lambda b: nisa.dma_copy(sb(8, 8), full(8, 8), dge_mode=HW),
        platform="trn1",
        good_on="trn2",
    ),
    Rule(
        "dma-packed",
        "DMA doesn't convert packed types",
        COPY,
        "src has the packed dtype float8_e5m2_x4",
        lambda b: nisa.dma_copy(sb(8, 8, dtype=F32 if b else E5M2_X4), hbm(8, 8, dtype=E5M2_X4)),
        platform="trn3",
    ),
    Rule(
        "dma-priority",
        "`priority` is 0 to 3",
        COPY,
        "priority=4; allowed: 0 to 3",
        lambda b: nisa.dma_copy(sb(8, 8), full(8, 8), priority=4 if b else 3),
        platform="trn3",
    ),
    Rule(
        "dma-priority-v4",
        "`priority` needs NeuronCore-v4",
        COPY,
        "priority needs NeuronCore-v4",
        lambda b: nisa.dma_copy(sb(8, 8), full(8, 8), priority=1),
        good_on="trn3",
    ),
    Rule(
        "dma-engine",
        "`engine` is for `dge_mode.hwdge`",
        COPY,
        "engine=scalar is only for dge_mode.hwdge, got swdge",
        lambda b: nisa.dma_copy(
            sb(8, 8), full(8, 8), engine=nisa.engine.scalar, dge_mode=SW if b else HW
        ),
    ),
    Rule(
        "dma-engine-name",
        "HWDGE descriptors come from the Sync or the Scalar engine",
        COPY,
        "engine=vector; allowed: scalar, sync, unknown",
        lambda b: nisa.dma_copy(
            sb(8, 8), full(8, 8), engine=nisa.engine.vector if b else nisa.engine.sync, dge_mode=HW
        ),
    ),
    Rule(
        "dma-indexed-hbm",
        "A vector offset indexes a tensor in HBM",
        COPY,
        "a vector offset indexes tensors in HBM",
        lambda b: gathered(sb if b else hbm),
    ),
    Rule(
        "dma-index-sbuf",
        "Indices of a vector offset are in SBUF",
        COPY,
        "a vector offset is an SBUF tile of shape",
        lambda b: gathered(indices=full(32, 1, dtype=U32) if b else rows()),
    ),
    Rule(
        "dma-two-vectors",
        "One side of a copy has a vector offset",
        COPY,
        "dst and src both carry a vector offset",
        lambda b: nisa.dma_copy(
            full(64, 16).ap([[16, 32], [1, 16]], vector_offset=rows(), indirect_dim=0)
            if b
            else sb(32, 16),
            full(64, 16).ap([[16, 32], [1, 16]], vector_offset=rows(), indirect_dim=0),
        ),
    ),
    Rule(
        "dma-former-rmw",
        "`dma_copy` has no `dst_rmw_op`",
        NOTES3,
        "dma_copy() got an unexpected keyword argument 'dst_rmw_op'",
        lambda b: nisa.dma_copy(sb(8, 8), full(8, 8), **({"dst_rmw_op": nl.add} if b else {})),
    ),
    Rule(
        "dma-former-unique",
        "`dma_copy` has no `unique_indices`",
        NOTES3,
        "dma_copy() got an unexpected keyword argument 'unique_indices'",
        lambda b: nisa.dma_copy(sb(8, 8), full(8, 8), **({"unique_indices": True} if b else {})),
    ),
    Rule(
        "enum-integer",
        "Enum parameters take members, not integers",
        NOTES3,
        "dge_mode=2 means dge_mode.hwdge",
        lambda b: nisa.dma_copy(sb(8, 8), full(8, 8), dge_mode=2 if b else HW),
        warns="published kernels do it",
        code="enum-number",
    ),
    Rule(
        "transpose-rank",
        "`dma_transpose` keeps the rank",
        "release-notes/components/nki.rst (0.4.0)",
        "dst has shape (64, 16); src of shape (16, 1, 64) transposed by (2, 1, 0) is (64, 1, 16)",
        lambda b: nisa.dma_transpose(
            sb(*((64, 16) if b else (64, 1, 16)), dtype=BF16), hbm(16, 1, 64, dtype=BF16)
        ),
    ),
    Rule(
        "transpose-shape",
        "`dst` of `dma_transpose` has the transposed shape",
        TRANSPOSE,
        "dst has shape (128, 15); src of shape (16, 128) transposed by (1, 0) is (128, 16)",
        lambda b: turned(dst=(128, 15) if b else None),
    ),
    Rule(
        "transpose-dtype",
        "`dma_transpose` keeps the dtype",
        TRANSPOSE,
        "a DMA transpose doesn't convert, they must be the same",
        lambda b: turned(dst_type=F32 if b else BF16),
    ),
    Rule(
        "transpose-axes",
        "`axes` of a 2-D `dma_transpose` are (1, 0)",
        TRANSPOSE,
        "axes=(0, 1); allowed: (1, 0), (2, 1, 0), (3, 1, 2, 0)",
        lambda b: turned(axes=(0, 1) if b else (1, 0)),
    ),
    Rule(
        "transpose-swdge",
        "A direct `dma_transpose` takes `dge_mode` unknown or hwdge",
        TRANSPOSE,
        "dge_mode=swdge of a direct transpose",
        lambda b: turned(dge_mode=SW if b else HW),
    ),
    Rule(
        "transpose-hw-rows",
        "A 2-D hardware transpose has 16 rows",
        TRANSPOSE,
        "dge_mode.hwdge takes 16 in two dimensions",
        lambda b: turned((32 if b else 16, 64), dge_mode=HW),
    ),
    Rule(
        "transpose-hw-rows-3d",
        "A 3-D hardware transpose has 1, 2, 4, 8 or 16 planes",
        TRANSPOSE,
        "src has shape (3, 16, 64); dge_mode.hwdge takes a first dimension of 1, 2, 4, 8, 16",
        lambda b: turned((3 if b else 4, 16, 64), dge_mode=HW),
    ),
    Rule(
        "transpose-hw-multiple",
        "Planes times rows of a hardware transpose are a multiple of 16",
        TRANSPOSE,
        "src has shape (4, 6, 64); dge_mode.hwdge takes a first dimension of 1, 2, 4, 8, 16",
        lambda b: turned((4, 6 if b else 8, 64), dge_mode=HW),
    ),
    Rule(
        "transpose-hw-columns",
        "A hardware transpose has at most 128 columns",
        TRANSPOSE,
        "129 partitions in a sbuf tensor of shape",
        lambda b: nisa.dma_transpose(
            sb(64, 2, 16, dtype=BF16) if not b else sb(129, 2, 16, dtype=BF16),
            hbm(16, 2, 129 if b else 64, dtype=BF16),
            dge_mode=HW,
        ),
    ),
    Rule(
        "transpose-hw-bytes",
        "A hardware transpose moves 2-byte elements",
        TRANSPOSE,
        "dge_mode.hwdge takes types of 2 bytes",
        lambda b: turned((16, 64), dtype=F32 if b else BF16, dge_mode=HW),
    ),
    Rule(
        "transpose-psum-dst",
        "`dst` of `dma_transpose` is in SBUF",
        TRANSPOSE,
        "dst is in psum",
        lambda b: nisa.dma_transpose(
            (ps if b else sb)(64, 16, dtype=BF16), full(16, 64, dtype=BF16)
        ),
    ),
    Rule(
        "sum-sources",
        "`dma_compute` adds at most 16 tensors",
        COMPUTE,
        "srcs has 17 tensors",
        lambda b: summed(17 if b else 16),
    ),
    Rule(
        "sum-scales",
        "All `scales` are 1.0",
        COMPUTE,
        "scales=[2.0, 1.0] for 2 sources",
        lambda b: summed(scales=[2.0, 1.0] if b else [1.0, 1.0]),
    ),
    Rule(
        "sum-elements",
        "All tensors of `dma_compute` have as many elements",
        COMPUTE,
        "srcs[0] has 512 elements",
        lambda b: summed(sizes=(7 if b else 8, 8)),
    ),
    Rule(
        "sum-psum",
        "`dma_compute` works in HBM and SBUF",
        COMPUTE,
        "dst is in psum",
        lambda b: summed(place=ps if b else hbm),
    ),
    Rule(
        "sum-operator",
        "`dma_compute` adds",
        COMPUTE,
        "reduce_op=nl.multiply; allowed: add",
        lambda b: summed(op=nl.multiply if b else nl.add),
    ),
    Rule(
        "sum-unique",
        "`unique_indices` is True",
        COMPUTE,
        "unique_indices=False with a vector offset",
        lambda b: gather_added(unique_indices=not b),
    ),
    Rule(
        "sum-addresses",
        "`dma_compute` takes no scalar offset",
        COMPUTE,
        "srcs[0] has an address known only at run time",
        lambda b: nisa.dma_compute(
            sb(32, 16),
            [
                full(64, 16).ap(
                    [[16, 32], [1, 16]],
                    **({"scalar_offset": made(1, 1, dtype=I32), "indirect_dim": 0} if b else {}),
                ),
                made(32, 16),
            ],
            nl.add,
        ),
    ),
    Rule(
        "sum-skip",
        "`oob_mode.skip` of `dma_compute` is for vector offsets",
        "release-notes/components/nki.rst (0.4.0)",
        "oob_mode.skip, and no tensor has a vector offset",
        lambda b: summed(oob_mode=nisa.oob_mode.skip if b else nisa.oob_mode.error),
    ),
]
