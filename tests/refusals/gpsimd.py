"""Gathers, searches, exchanges between cores, registers."""

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import BF16, F32, I32, U16, U32, Rule, made, sb, tt

ISA = "nki/api/nki/isa (%s)"
E = nisa.engine
V3, V4 = {"platform": "trn2", "good_on": "trn3"}, {"platform": "trn3"}


def gather(src=(16, 8), index=(16, 4), dst=(16, 64), dtype=U16, d=F32, **options):
    nisa.local_gather(sb(*dst, dtype=d), made(*src), made(*index, dtype=dtype), **options)


def shuffle(p=64, d=F32, mask=None, columns=6, start=0):
    nisa.nc_stream_shuffle(sb(p, columns, dtype=d), made(p, 6), mask or list(range(32)))


def topk(p=16, f=8, n=64, k=8, s=BF16, v=BF16, i=U32, place=nl.sbuf):
    nisa.topk(sb(p, k, dtype=v), sb(p, k, dtype=i), made(p, f, dtype=s, buffer=place), n)


RULES = [
    Rule(
        "gather-index-type",
        "`index` of `local_gather` is uint16",
        ISA % "local_gather",
        "index has dtype uint32",
        lambda b: gather(dtype=U32 if b else U16),
    ),
    Rule(
        "gather-type",
        "`local_gather` keeps the dtype",
        ISA % "local_gather",
        "dst has dtype bfloat16, src_buffer float32",
        lambda b: gather(d=BF16 if b else F32),
    ),
    Rule(
        "gather-rows",
        "`local_gather` takes a multiple of 16 partitions",
        ISA % "local_gather",
        "dst has 24 partitions, src_buffer 24, index 24",
        lambda b: gather((24, 8), (24, 4), (24, 64)) if b else gather(),
    ),
    Rule(
        "gather-match",
        "`src_buffer` and `index` of `local_gather` have as many partitions",
        ISA % "local_gather",
        "dst has 16 partitions, src_buffer 32, index 16",
        lambda b: gather((32 if b else 16, 8)),
    ),
    Rule(
        "gather-run",
        "`num_elem_per_idx` is a power of 2 up to 32",
        ISA % "local_gather",
        "num_elem_per_idx=3; allowed: 1, 2, 4, 8, 16, 32",
        lambda b: gather(dst=(16, 192 if b else 128), num_elem_per_idx=3 if b else 2),
    ),
    Rule(
        "gather-valid",
        "`num_valid_indices` isn't more than there are",
        ISA % "local_gather",
        "num_valid_indices=65; allowed: 1 to 64, the indices of 16 partitions",
        lambda b: gather(dst=(16, 65 if b else 64), num_valid_indices=65 if b else 64),
    ),
    Rule(
        "gather-many",
        "`local_gather` takes at most 4096 indices per core",
        ISA % "local_gather",
        "4352 indices per GpSimd core",
        lambda b: gather(index=(16, 272 if b else 256), dst=(16, 16 * (272 if b else 256))),
    ),
    Rule(
        "n-gather-index",
        "`indices` of `nc_n_gather` is uint32",
        ISA % "nc_n_gather",
        "indices has dtype int32",
        lambda b: nisa.nc_n_gather(sb(8, 4), made(8, 6), made(8, 4, dtype=I32 if b else U32)),
    ),
    Rule(
        "n-gather-type",
        "`nc_n_gather` keeps the dtype",
        ISA % "nc_n_gather",
        "dst has dtype bfloat16, data float32",
        lambda b: nisa.nc_n_gather(
            sb(8, 4, dtype=BF16 if b else F32), made(8, 6), made(8, 4, dtype=U32)
        ),
    ),
    Rule(
        "n-gather-psum",
        "`nc_n_gather` reads SBUF",
        ISA % "nc_n_gather",
        "data is in psum",
        lambda b: nisa.nc_n_gather(
            sb(8, 4), made(8, 6, buffer=nl.psum if b else nl.sbuf), made(8, 4, dtype=U32)
        ),
    ),
    Rule(
        "shuffle-type",
        "`nc_stream_shuffle` keeps the dtype",
        ISA % "nc_stream_shuffle",
        "dst has dtype bfloat16, src float32",
        lambda b: shuffle(d=BF16 if b else F32),
    ),
    Rule(
        "shuffle-mask",
        "`shuffle_mask` has 32 entries",
        ISA % "nc_stream_shuffle",
        "shuffle_mask has 31 entries",
        lambda b: shuffle(mask=list(range(31)) if b else None),
    ),
    Rule(
        "shuffle-mask-values",
        "`shuffle_mask` names partitions of a quadrant, or 255",
        ISA % "nc_stream_shuffle",
        "shuffle_mask[0]=32; allowed: 0 to 31, or 255 to keep",
        lambda b: shuffle(mask=[32 if b else 255, *range(1, 32)]),
    ),
    Rule(
        "shuffle-elements",
        "`nc_stream_shuffle` keeps the number of elements",
        ISA % "nc_stream_shuffle",
        "operands must have the same number of elements per partition",
        lambda b: shuffle(columns=5 if b else 6),
    ),
    Rule(
        "max8-size",
        "`max8` reads 8 to 16,384 elements",
        ISA % "max8",
        "src has 7 elements per partition",
        lambda b: nisa.max8(sb(8, 8), made(8, 7 if b else 8)),
    ),
    Rule(
        "find8-values",
        "`nc_find_index8` looks for 8 values",
        ISA % "nc_find_index8",
        "vals has 7 elements per partition",
        lambda b: nisa.nc_find_index8(sb(8, 8, dtype=U32), made(8, 64), made(8, 7 if b else 8)),
    ),
    Rule(
        "find8-size",
        "`nc_find_index8` reads 8 to 16,384 elements",
        ISA % "nc_find_index8",
        "data has 7 elements per partition",
        lambda b: nisa.nc_find_index8(sb(8, 8, dtype=U32), made(8, 7 if b else 8), made(8, 8)),
    ),
    Rule(
        "replace8-values",
        "`nc_match_replace8` looks for 8 values",
        ISA % "nc_match_replace8",
        "vals has 9 elements per partition",
        lambda b: nisa.nc_match_replace8(sb(8, 64), made(8, 64), made(8, 9 if b else 8), 0.0),
    ),
    Rule(
        "bounds-row",
        "`sequence_bounds` works on one partition",
        ISA % "sequence_bounds",
        "dst has 2 partitions, segment_ids 2",
        lambda b: nisa.sequence_bounds(sb(2 if b else 1, 2, 6), made(2 if b else 1, 6)),
    ),
    Rule(
        "bounds-type",
        "`sequence_bounds` takes float32 and int32",
        ISA % "sequence_bounds",
        "segment_ids has dtype bfloat16",
        lambda b: nisa.sequence_bounds(sb(1, 2, 6), made(1, 6, dtype=BF16 if b else F32)),
    ),
    Rule(
        "nonzero-size",
        "`dst` of `nonzero_with_count` has one element more than `src`",
        ISA % "nonzero_with_count",
        "dst has 6 elements per partition",
        lambda b: nisa.nonzero_with_count(sb(16, 6 if b else 7, dtype=I32), made(16, 6)),
    ),
    Rule(
        "nonzero-type",
        "`dst` of `nonzero_with_count` is int32",
        ISA % "nonzero_with_count",
        "dst has dtype float32",
        lambda b: nisa.nonzero_with_count(sb(16, 7, dtype=F32 if b else I32), made(16, 6)),
    ),
    Rule(
        "topk-type",
        "`topk` takes bfloat16",
        ISA % "topk",
        "src has dtype float32",
        lambda b: topk(s=F32 if b else BF16),
    ),
    Rule(
        "topk-index",
        "Indices of `topk` are uint32",
        ISA % "topk",
        "idx_dst has dtype int32",
        lambda b: topk(i=I32 if b else U32),
    ),
    Rule(
        "topk-n",
        "`n` of `topk` is at least 8",
        ISA % "topk",
        "n=7; allowed: 8 to 65535",
        lambda b: topk(n=7 if b else 8, k=4),
    ),
    Rule(
        "topk-k",
        "`topk` finds at most `n` values",
        ISA % "topk",
        "val_dst asks for K=17 elements; allowed: 1 to 16",
        lambda b: topk(n=16, k=17 if b else 16),
    ),
    Rule(
        "topk-rows",
        "`topk` takes a multiple of 16 partitions",
        ISA % "topk",
        "must be a multiple of 16",
        lambda b: topk(p=24 if b else 16),
    ),
    Rule(
        "topk-room",
        "`src` of `topk` holds `n` elements",
        ISA % "topk",
        "src has 3 elements per partition",
        lambda b: topk(f=3 if b else 4, n=64),
    ),
    Rule(
        "indirect-v4",
        "`.indirect()` views need NeuronCore-v4",
        "nki/api/nki/isa (tensor_copy)",
        "src is an .indirect() view, which needs NeuronCore-v4",
        lambda b: nisa.tensor_copy(sb(32, 6), made(32, 6).indirect(made(32, 2, dtype=U32), 6)),
        **V3,
    ),
    Rule(
        "indirect-data2",
        "`data2` of `tensor_tensor` isn't an `.indirect()` view",
        ISA % "tensor_tensor",
        "which this instruction doesn't take there",
        lambda b: nisa.tensor_tensor(
            sb(32, 6),
            made(32, 6),
            made(32, 6).indirect(made(32, 2, dtype=U32), 6) if b else made(32, 6),
            nl.add,
        ),
        **V4,
    ),
    Rule(
        "register-one",
        "`register_load` reads one element",
        ISA % "register_load",
        "a register holds one element, the tensor has 2",
        lambda b: nisa.register_load(nisa.register_alloc(0), made(1, 2 if b else 1, dtype=I32)),
    ),
    Rule(
        "register-bits",
        "A register holds 32 bits",
        "nki/get-started/nki-language-guide.rst",
        "a register or a 32-bit int",
        lambda b: nisa.register_alloc(2**32 if b else 2**31 - 1),
    ),
    Rule(
        "send-v3",
        "`sendrecv` needs two cores",
        ISA % "sendrecv",
        "send_to_rank=2; allowed: 0 or 1, the cores of the LNC",
        lambda b: nisa.sendrecv(
            made(8, 6), sb(8, 6), 1 - nl.program_id(0) if not b else 2, 1 - nl.program_id(0), 0
        ),
        lnc=2,
    ),
    Rule(
        "send-type",
        "`src` and `dst` of `sendrecv` have one dtype",
        ISA % "sendrecv",
        "src has dtype float32, dst bfloat16",
        lambda b: nisa.sendrecv(
            made(8, 6),
            sb(8, 6, dtype=BF16 if b else F32),
            1 - nl.program_id(0),
            1 - nl.program_id(0),
            0,
        ),
        lnc=2,
    ),
    Rule(
        "send-shape",
        "`src` and `dst` of `sendrecv` have one shape",
        ISA % "sendrecv",
        "operands must have the same number of elements per partition",
        lambda b: nisa.sendrecv(
            made(8, 6), sb(8, 5 if b else 6), 1 - nl.program_id(0), 1 - nl.program_id(0), 0
        ),
        lnc=2,
    ),
    Rule(
        "send-gpsimd",
        "The GpSimd engine's DMA sends 1024 bytes of a 32-bit type per partition",
        ISA % "sendrecv",
        "gpsimd_dma with 1028 bytes per partition",
        lambda b: nisa.sendrecv(
            made(8, 257 if b else 256),
            sb(8, 257 if b else 256),
            1 - nl.program_id(0),
            1 - nl.program_id(0),
            0,
            dma_engine=nisa.dma_engine.gpsimd_dma,
        ),
        lnc=2,
    ),
    Rule(
        "send-memory",
        "`sendrecv` works in SBUF",
        ISA % "sendrecv",
        "src is in psum",
        lambda b: nisa.sendrecv(
            made(8, 6, buffer=nl.psum if b else nl.sbuf),
            sb(8, 6),
            1 - nl.program_id(0),
            1 - nl.program_id(0),
            0,
        ),
        lnc=2,
    ),
    Rule(
        "barrier-shared",
        "`core_barrier` orders a tensor in shared_hbm",
        ISA % "core_barrier",
        "a barrier hands over a tensor in shared_hbm, which both cores see",
        lambda b: nisa.core_barrier(
            nl.ndarray((8, 6), dtype=F32, buffer=nl.private_hbm if b else nl.shared_hbm), (0, 1)
        ),
        lnc=2,
    ),
    Rule(
        "barrier-sbuf",
        "`core_barrier` names a tensor in shared_hbm",
        ISA % "core_barrier",
        "the documentation asks for the tensor in shared_hbm that is handed over",
        lambda b: nisa.core_barrier(
            sb(8, 6) if b else nl.ndarray((8, 6), dtype=F32, buffer=nl.shared_hbm), (0, 1)
        ),
        lnc=2,
        warns="published kernels name tensors in SBUF, too, and wait all the same",
        code="barrier-memory",
    ),
    Rule(
        "keyword",
        "Keywords are those of the documentation",
        "release-notes/components/nki.rst (0.2.0)",
        "memset() got an unexpected keyword argument 'valeu'",
        lambda b: nisa.memset(sb(8, 6), **{"valeu" if b else "value": 0.0}),
    ),
    Rule(
        "engine-name",
        "`engine` is one that has the instruction",
        ISA % "tensor_tensor",
        "engine=tensor; allowed: vector, gpsimd or unknown",
        lambda b: tt(engine=E.tensor if b else E.vector),
    ),
    Rule(
        "empty",
        "Operands have elements",
        ISA % "tensor_copy",
        "dst is empty",
        lambda b: nisa.tensor_copy(
            sb(8, 6)[:, 0:0] if b else sb(8, 6), made(8, 6)[:, 0:0] if b else made(8, 6)
        ),
    ),
]
