"""Memories, views and access patterns."""

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import BF16, F32, I32, U32, Rule, hbm, made, ps, sb

TILING = "nki/get-started/about/tiling-overview.rst"
GUIDE = "nki/get-started/nki-language-guide.rst"
PATTERNS = "nki/deep-dives/nki-aps.rst"
VIEWS = "nki/api/nki/language (NkiTensor)"
MIGRATION = "nki/migration/index.rst"


def _live(count, shape):
    tiles = []
    for _ in range(count):
        tiles.append(sb(*shape))
    for tile in tiles:
        nisa.memset(tile, value=0.0)
    for tile in tiles:
        nisa.tensor_copy(dst=tile, src=tile)


def _banks(count):
    tiles = []
    for _ in range(count):
        tiles.append(ps(128, 512))
    for tile in tiles:
        nisa.memset(tile, value=0.0)
    for tile in tiles:
        nisa.tensor_copy(dst=tile, src=tile)


def _copy(src, like=None):
    shape = like or src.shape
    nisa.tensor_copy(dst=sb(*shape, dtype=src.dtype), src=src)


def _dma(src, *shape):
    nisa.dma_copy(dst=sb(*shape, dtype=src.dtype), src=src)


RULES = [
    Rule(
        "tile-partitions",
        "A tile in SBUF or PSUM has at most 128 partitions",
        TILING,
        "129 partitions in a sbuf tensor of shape",
        lambda b: sb(129 if b else 128, 8),
    ),
    Rule(
        "tile-rank",
        "A tile in SBUF or PSUM has at least 2 dimensions",
        GUIDE,
        "shape (64,) in sbuf; on-chip tensors have a partition dimension and at least one free",
        lambda b: sb(64) if b else sb(64, 1),
    ),
    Rule(
        "sbuf-partition-bytes",
        "A tile fits into its SBUF partitions",
        "nki/get-started/about/memory-hierarchy-overview.rst",
        "a sbuf tensor of shape (128, 2, 30000) and dtype float32 needs 240000 bytes per",
        lambda b: nisa.memset(sb(128, 2, 30000 if b else 20000), value=0.0),
    ),
    Rule(
        "sbuf-capacity",
        "Tiles that are live together fit into SBUF",
        GUIDE,
        "SBUF has 212984 usable bytes per partition, the kernel needs 240000",
        lambda b: _live(3 if b else 2, (128, 20000)),
    ),
    Rule(
        "psum-capacity",
        "Tiles that are live together fit into PSUM's 8 banks",
        GUIDE,
        "PSUM has 16384 usable bytes per partition (8 banks), the kernel needs 18432 (9 banks)",
        lambda b: _banks(9 if b else 8),
    ),
    Rule(
        "psum-address",
        "The address of a PSUM tile is the start of a bank",
        MIGRATION,
        "a tile starts at the beginning of a bank, byte 0, 2048, 4096, ..",
        lambda b: nl.ndarray(
            (128, 16), dtype=F32, buffer=nl.psum, address=(0, 3 * 2048 + (64 if b else 0))
        ),
    ),
    Rule(
        "index-range",
        "An index lies within its tensor",
        GUIDE,
        "index 64 on dimension 0 of size 64 of",
        lambda b: made(64, 8)[64 if b else 63],
    ),
    Rule(
        "reshape-elements",
        "`reshape` keeps the number of elements",
        "release-notes/components/nki.rst (0.5.0)",
        "1280 elements, it has 1024",
        lambda b: sb(128, 8).reshape((128, 2, 5 if b else 4)),
    ),
    Rule(
        "reshape-partitions",
        "`reshape` keeps the partition dimension of a tile",
        VIEWS,
        "reshape((64, 16)) would change dimension 0, the partition dimension of",
        lambda b: sb(128, 8).reshape((64, 16) if b else (128, 2, 4)),
    ),
    Rule(
        "permute-partitions",
        "`permute` keeps the partition dimension of a tile first",
        VIEWS,
        "permute((1, 0, 2)) would change dimension 0, the partition dimension of",
        lambda b: sb(128, 2, 4).permute((1, 0, 2) if b else (0, 2, 1)),
    ),
    Rule(
        "permute-all",
        "`permute` takes every dimension once",
        VIEWS,
        "(0, 1, 1) is no permutation of 3 dimensions",
        lambda b: sb(128, 2, 4).permute((0, 1, 1) if b else (0, 2, 1)),
    ),
    Rule(
        "broadcast-one",
        "`broadcast` repeats a dimension of size 1",
        VIEWS,
        "broadcast of dimension 1, which has size 2",
        lambda b: sb(128, 2 if b else 1, 4).broadcast(1, 6),
    ),
    Rule(
        "broadcast-partitions",
        "`broadcast` can't repeat the partition dimension of a tile",
        VIEWS,
        "broadcast would change dimension 0, the partition dimension of",
        lambda b: sb(1, 1, 4).broadcast(0 if b else 1, 6),
    ),
    Rule(
        "expand-partitions",
        "`expand_dim` puts no dimension before a tile's partitions",
        VIEWS,
        "expand_dim(0) would change dimension 0, the partition dimension of",
        lambda b: sb(128, 4).expand_dim(0 if b else 1),
    ),
    Rule(
        "squeeze-one",
        "`squeeze_dim` drops a dimension of size 1",
        VIEWS,
        "the dimension has size 2",
        lambda b: sb(128, 2 if b else 1, 4).squeeze_dim(1),
    ),
    Rule(
        "squeeze-partitions",
        "`squeeze_dim` keeps the partition dimension of a tile",
        VIEWS,
        "squeeze_dim would change dimension 0, the partition dimension of",
        lambda b: sb(1, 1, 4).squeeze_dim(0 if b else 1),
    ),
    Rule(
        "split-product",
        "`reshape_dim` splits a dimension into factors of it",
        VIEWS,
        "shape (3, 3) has 9 elements, expected 8",
        lambda b: sb(128, 8).reshape_dim(1, (3, 3) if b else (2, 4)),
    ),
    Rule(
        "split-partitions",
        "`reshape_dim` keeps the partition dimension of a tile",
        VIEWS,
        "reshape_dim(0, (2, 64)) would change dimension 0, the partition dimension of",
        lambda b: sb(128, 8).reshape_dim(0 if b else 1, (2, 64) if b else (2, 4)),
    ),
    Rule(
        "flatten-partitions",
        "`flatten_dims` keeps the partition dimension of a tile",
        VIEWS,
        "flatten_dims(0, ...) would change dimension 0, the partition dimension of",
        lambda b: sb(128, 2, 4).flatten_dims(0 if b else 1, 2),
    ),
    Rule(
        "flatten-contiguous",
        "`flatten_dims` joins dimensions that are contiguous",
        VIEWS,
        "dimensions 1..2 of shape (128, 2, 3), strides (8, 4, 1) aren't contiguous and can't be",
        lambda b: sb(128, 2, 4)[:, :, 0 : 3 if b else 4].flatten_dims(1, 2),
    ),
    Rule(
        "view-divides",
        "`view` as a wider type needs a last dimension that divides",
        VIEWS,
        "14 bytes) aren't a whole number of float32",
        lambda b: sb(128, 7 if b else 8, dtype=BF16).view(F32),
    ),
    Rule(
        "select-partitions",
        "A run-time `select` takes a free dimension of a tile",
        PATTERNS,
        "only free dimensions of on-chip tensors can be selected at run time",
        lambda b: _copy(
            made(64, 8, 4).select(0 if b else 1, made(1, 1, dtype=I32)),
            (1, 8, 4) if b else (64, 4),
        ),
    ),
    Rule(
        "vector-select-rows",
        "`vector_select` takes dimension 0",
        VIEWS,
        "vector_select on dimension 1",
        lambda b: hbm(64, 32).vector_select(1 if b else 0, made(32, 1, dtype=U32)),
    ),
    Rule(
        "vector-select-hbm",
        "`vector_select` is for tensors in HBM",
        VIEWS,
        "a vector offset indexes tensors in HBM",
        lambda b: (sb if b else hbm)(64, 32).vector_select(0, made(32, 1, dtype=U32)),
    ),
    Rule(
        "indirect-once",
        "A view has one run-time index",
        VIEWS,
        "this view already has a run-time index",
        lambda b: (lambda v: v.vector_select(0, made(32, 1, dtype=U32)) if b else v)(
            hbm(64, 32).vector_select(0, made(32, 1, dtype=U32))
        ),
    ),
    Rule(
        "view-after-index",
        "`view` comes before a run-time index",
        VIEWS,
        "view(dtype) of a tensor with a run-time index",
        lambda b: (lambda v: v.view(I32) if b else v)(
            hbm(64, 32).vector_select(0, made(32, 1, dtype=U32))
        ),
    ),
    Rule(
        "ap-partition-stride",
        "The first step of a tile's access pattern is its elements per partition",
        PATTERNS,
        "Use a pattern for each run of partitions",
        lambda b: _copy(made(128, 32).ap([[64 if b else 32, 64], [1, 32]])),
    ),
    Rule(
        "ap-inside",
        "An access pattern stays within its tensor's partitions",
        PATTERNS,
        "only dimension 0 goes from partition to partition",
        lambda b: _copy(made(128, 32).ap([[32, 64], [2, 17 if b else 16]])),
    ),
    Rule(
        "ap-offsets",
        "An access pattern has a scalar offset or a vector offset",
        PATTERNS,
        "scalar_offset and vector_offset exclude each other",
        lambda b: hbm(64, 32).ap(
            [[32, 32], [1, 32]],
            vector_offset=made(32, 1, dtype=U32),
            indirect_dim=0,
            **({"scalar_offset": made(1, 1, dtype=I32)} if b else {}),
        ),
    ),
    Rule(
        "ap-scalar-one",
        "A scalar offset is one element",
        PATTERNS,
        "a scalar offset is a register or a tile of one element in SBUF, got shape",
        lambda b: _dma(
            hbm(64, 32).ap(
                [[32, 8], [1, 32]],
                scalar_offset=made(2 if b else 1, 1, dtype=I32),
                indirect_dim=0,
            ),
            8,
            32,
        ),
    ),
    Rule(
        "ap-scalar-partitions",
        "A scalar offset of a tile moves along a free dimension",
        "nki/deep-dives/nki-aps.rst; nki-moe report NCC_INLA001",
        "only free dimensions of on-chip tensors can be selected at run time",
        lambda b: _copy(
            made(64, 8).ap(
                [[8, 32], [1, 4]],
                scalar_offset=made(1, 1, dtype=I32),
                indirect_dim=0 if b else 1,
            )
        ),
    ),
    Rule(
        "pattern-rank",
        "An operand has at most 5 dimensions, partitions included",
        PATTERNS,
        "src has shape (8, 2, 2, 2, 2, 2) and strides (3125, 625, 125, 25, 5, 1), 5 free",
        lambda b: _copy(
            made(8, 5, 5, 5, 5, 5)[:, 0:2, 0:2, 0:2, 0:2, 0:2]
            if b
            else made(8, 5, 5, 5, 5)[:, 0:2, 0:2, 0:2, 0:2]
        ),
    ),
    Rule(
        "start-partition",
        "An engine starts at partition 0, 32, 64 or 96",
        "nki/guides/architecture/trainium_inferentia2_arch.rst",
        "an engine accesses 32 partitions from 0, 32, 64, 96 only",
        lambda b: _copy(made(64, 8)[16 if b else 32 : 48], (32 if b else 16, 8)),
    ),
    Rule(
        "buffer-string",
        "`buffer` is an object of `nl`",
        MIGRATION + " (string buffer names)",
        "is a string; allowed: nl.sbuf, nl.psum",
        lambda b: nl.ndarray((64, 8), dtype=F32, buffer="sbuf" if b else nl.sbuf),
    ),
]
