"""The Vector, Scalar and GpSimd engines."""

from __future__ import annotations

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.memory import _filled as made
from tests.refusals.rule import BF16, E4M3, F16, F32, I16, I32, U16, U32, U8, Rule, hbm, ps, sb

ISA = "nki/api/nki/isa (%s)"
E = nisa.engine
V3, V4 = {"platform": "trn2", "good_on": "trn3"}, {"platform": "trn3"}


def tt(op=nl.add, a=F32, b=F32, d=F32, pa=nl.sbuf, pb=nl.sbuf, pd=sb, shape=(8, 6), second=(8, 6), **options):
    nisa.tensor_tensor(pd(*shape, dtype=d), made(*shape, dtype=a, buffer=pa), made(*second, dtype=b, buffer=pb), op, **options)


def ts(op0=nl.multiply, operand0=2.0, d=F32, s=F32, **options):
    nisa.tensor_scalar(sb(8, 6, dtype=d), made(8, 6, dtype=s), op0, operand0, **options)


def act(op=nl.exp, s=F32, d=F32, columns=6, **options):
    nisa.activation(sb(8, columns, dtype=d), op, made(8, 6, dtype=s), **options)


def cumulative(op0=nl.multiply, op1=nl.add, d=F32, **options):
    nisa.tensor_scalar_cumulative(sb(8, 6, dtype=d), made(8, 6), op0, op1, 2.0, **options)


def stt(op0=nl.add, op1=nl.multiply, pa=nl.sbuf, pb=nl.sbuf, second=(8, 6)):
    nisa.scalar_tensor_tensor(sb(8, 6), made(8, 6, buffer=pa), op0, 1.0, op1, made(*second, buffer=pb))


def gather(src=(16, 8), index=(16, 4), dst=(16, 64), dtype=U16, d=F32, **options):
    nisa.local_gather(sb(*dst, dtype=d), made(*src), made(*index, dtype=dtype), **options)


def shuffle(p=64, d=F32, mask=None, columns=6, start=0):
    nisa.nc_stream_shuffle(sb(p, columns, dtype=d), made(p, 6), mask or list(range(32)))


def topk(p=16, f=8, n=64, k=8, s=BF16, v=BF16, i=U32, place=nl.sbuf):
    nisa.topk(sb(p, k, dtype=v), sb(p, k, dtype=i), made(p, f, dtype=s, buffer=place), n)


def select(on_false=0.0, op=nl.maximum, p=U8, res=None, **options):
    nisa.select_reduce(sb(8, 6), made(8, 6, dtype=p), made(8, 6), on_false, reduce_res=res, reduce_op=op, **options)


def ranges(op=nl.greater, t=F32, bound=F32, columns=1, **options):
    nisa.range_select(sb(8, 6, dtype=t), made(8, 6, dtype=t), op, nl.less, made(8, columns, dtype=bound), made(8, 1, dtype=bound), **options)


RULES = [
    Rule("memset-kind", "`memset` fills integers with integers", "release-notes/components/nki.rst (0.3.0)", "?", lambda b: nisa.memset(sb(8, 6, dtype=I32), value=2.5 if b else 2)),
    Rule("memset-float-literal", "`memset` fills integers with integers, not with 2.0", "release-notes/components/nki.rst (0.3.0)", "?", lambda b: nisa.memset(sb(8, 6, dtype=I32), value=2.0 if b else 2)),
    Rule("memset-range", "`memset` fills with what the dtype can hold", ISA % "memset", "?", lambda b: nisa.memset(sb(8, 6, dtype=U8), value=256 if b else 255)),
    Rule("memset-packed", "`memset` fills packed types with 0", "release-notes/components/nki.rst (0.3.0)", "?", lambda b: nisa.memset(sb(8, 8, dtype=nl.float8_e5m2_x4), value=1 if b else 0), **V4),
    Rule("copy-elements", "`tensor_copy` keeps the number of elements", ISA % "tensor_copy", "?", lambda b: nisa.tensor_copy(sb(8, 7 if b else 6), made(8, 6))),
    Rule("copy-partitions", "`tensor_copy` keeps the number of partitions", ISA % "tensor_copy", "?", lambda b: nisa.tensor_copy(sb(4 if b else 8, 12 if b else 6), made(8, 6))),
    Rule("copy-hbm", "Engines don't reach HBM", "nki/get-started/about/memory-hierarchy-overview.rst", "?", lambda b: nisa.tensor_copy(sb(8, 6), hbm(8, 6) if b else made(8, 6))),
    Rule("copy-scalar-v2", "The Scalar engine copies from NeuronCore-v3 on", ISA % "tensor_copy", "?", lambda b: nisa.tensor_copy(sb(8, 6), made(8, 6), engine=E.scalar), platform="trn1", good_on="trn2"),
    Rule("copy-gpsimd-psum", "The GpSimd engine doesn't reach PSUM", ISA % "tensor_copy", "?", lambda b: nisa.tensor_copy(sb(8, 6), made(8, 6, buffer=nl.psum if b else nl.sbuf), engine=E.gpsimd)),
    Rule("predicate-type", "`predicate` is uint8, uint16 or uint32", ISA % "tensor_copy_predicated", "?", lambda b: nisa.tensor_copy_predicated(made(8, 6), made(8, 6), made(8, 6, dtype=F32 if b else U8))),
    Rule("predicate-src-type", "`src` and `dst` of `tensor_copy_predicated` have one dtype", ISA % "tensor_copy_predicated", "?", lambda b: nisa.tensor_copy_predicated(made(8, 6), made(8, 6, dtype=BF16 if b else F32), made(8, 6, dtype=U8))),
    Rule("tt-partitions", "Tiles of `tensor_tensor` have as many partitions", ISA % "tensor_tensor", "?", lambda b: tt(second=(4 if b else 8, 6))),
    Rule("tt-elements", "Tiles of `tensor_tensor` have as many elements per partition", ISA % "tensor_tensor", "?", lambda b: tt(second=(8, 1 if b else 6))),
    Rule("tt-psum", "`data1` and `data2` aren't both in PSUM", ISA % "tensor_tensor", "?", lambda b: tt(pa=nl.psum, pb=nl.psum if b else nl.sbuf)),
    Rule("tt-bitwise", "Bitwise operators take integers", ISA % "tensor_tensor", "?", lambda b: tt(nl.bitwise_and, *([F32] * 3 if b else [I32] * 3))),
    Rule("tt-power-psum", "`power` runs on the GpSimd engine, which doesn't reach PSUM", ISA % "tensor_tensor", "?", lambda b: tt(nl.power, pa=nl.psum if b else nl.sbuf)),
    Rule("tt-operator", "`op` of `tensor_tensor` is one of its operators", "nki/api/nki.api.shared.rst", "?", lambda b: tt(nl.exp if b else nl.add)),
    Rule("ts-column", "A tile as `operand0` is one element per partition", ISA % "tensor_scalar", "?", lambda b: ts(operand0=made(8, 2 if b else 1))),
    Rule("ts-column-rows", "A tile as `operand0` has a row per partition", ISA % "tensor_scalar", "?", lambda b: ts(operand0=made(1 if b else 8, 1))),
    Rule("ts-float32", "`operand0` is float32 for arithmetic operators", ISA % "tensor_scalar" + "; kernel agents' pitfalls (TensorScalarPtr)", "?", lambda b: ts(operand0=made(8, 1, dtype=BF16 if b else F32))),
    Rule("ts-kinds", "`op0` and `op1` are both bitwise or both arithmetic", ISA % "tensor_scalar", "?", lambda b: nisa.tensor_scalar(sb(8, 6, dtype=I32), made(8, 6, dtype=I32), nl.bitwise_and, 3, op1=nl.add if b else nl.bitwise_or, operand1=1)),
    Rule("ts-bitwise-type", "Bitwise operators of `tensor_scalar` take integers", ISA % "tensor_scalar", "?", lambda b: ts(nl.bitwise_and, 3, *([F32, F32] if b else [I32, I32]))),
    Rule("ts-bitwise-engine", "Bitwise operators run on the Vector engine", ISA % "tensor_scalar", "?", lambda b: ts(nl.bitwise_and, 3, I32, I32, engine=E.gpsimd if b else E.vector)),
    Rule("ts-scalar-pairs", "The Scalar engine of trn2 multiplies, adds, or multiplies and adds", ISA % "tensor_scalar", "?", lambda b: ts(op1=nl.subtract if b else nl.add, operand1=1.0, engine=E.scalar)),
    Rule("ts-unused", "`operand1` is None without `op1`", ISA % "tensor_scalar", "?", lambda b: ts(**({"operand1": 1.0} if b else {}))),
    Rule("ts-unary", "A unary `op0` takes None or 0", ISA % "tensor_scalar", "?", lambda b: ts(nl.abs, 2.0 if b else 0)),
    Rule("ts-v4-square", "`square` and `relu` as `op0` need NeuronCore-v4", "release-notes/components/nki.rst (0.4.0)", "?", lambda b: ts(nl.square, 0), good_on="trn3"),
    Rule("reduce-partitions", "`tensor_reduce` doesn't reduce partitions", ISA % "tensor_reduce", "?", lambda b: nisa.tensor_reduce(sb(8, 1), nl.add, made(8, 6), axis=0 if b else 1)),
    Rule("reduce-last", "`tensor_reduce` reduces the last dimensions", ISA % "tensor_reduce", "?", lambda b: nisa.tensor_reduce(sb(8, 3), nl.add, made(8, 2, 3) if b else made(8, 3, 2), axis=1 if b else 2)),
    Rule("reduce-dst", "`dst` of `tensor_reduce` holds what is left", ISA % "tensor_reduce", "?", lambda b: nisa.tensor_reduce(sb(8, 2 if b else 1), nl.add, made(8, 6), axis=1)),
    Rule("reduce-bitwise", "Bitwise reductions take integers", ISA % "tensor_reduce", "?", lambda b: nisa.tensor_reduce(sb(8, 1, dtype=F32 if b else I32), nl.bitwise_or, made(8, 6, dtype=F32 if b else I32), axis=1)),
    Rule("partition-reduce", "`tensor_partition_reduce` makes one partition", ISA % "tensor_partition_reduce", "?", lambda b: nisa.tensor_partition_reduce(sb(2 if b else 1, 6), nl.add, made(8, 6))),
    Rule("cumulative-op0", "`op0` of `tensor_scalar_cumulative` is arithmetic", ISA % "tensor_scalar_cumulative", "?", lambda b: cumulative(op0=nl.bitwise_and if b else nl.multiply)),
    Rule("cumulative-op1", "`op1` of `tensor_scalar_cumulative` adds, subtracts, multiplies or compares", ISA % "tensor_scalar_cumulative", "?", lambda b: cumulative(op1=nl.divide if b else nl.add)),
    Rule("cumulative-type", "`tensor_scalar_cumulative` has no 32-bit integers", ISA % "tensor_scalar_cumulative", "?", lambda b: cumulative(d=I32 if b else I16)),
    Rule("activation-function", "`op` of `activation` is an activation function", "nki/api/nki.api.shared.rst", "?", lambda b: act(nl.add if b else nl.exp)),
    Rule("activation-elements", "`activation` keeps the number of elements", ISA % "activation", "?", lambda b: act(columns=5 if b else 6)),
    Rule("activation-scale-type", "`scale` is float32", ISA % "activation", "?", lambda b: act(scale=made(8, 1, dtype=BF16 if b else F32))),
    Rule("activation-bias-column", "`bias` is one element per partition", "release-notes/components/nki.rst (0.2.0)", "?", lambda b: act(bias=made(8, 6 if b else 1))),
    Rule("activation-bias-rows", "`bias` has a row per partition", ISA % "activation" + "; reports of (1, 1) tiles", "?", lambda b: act(bias=made(1 if b else 8, 1))),
    Rule("activation-bias-v2", "`bias` is a column on NeuronCore-v2", ISA % "activation" + "; trnsci/trnrand NCC_IBIR605", "?", lambda b: act(nl.log, bias=1e-5 if b else made(8, 1)), platform="trn1"),
    Rule("activation-reduce-op", "`activation` reduces by adding", ISA % "activation", "?", lambda b: act(reduce_op=nl.multiply if b else nl.add, reduce_res=sb(8, 1), reduce_cmd=nisa.reduce_cmd.reset_reduce)),
    Rule("activation-reduce-res", "`reduce_res` is one element per partition", ISA % "activation_reduce", "?", lambda b: nisa.activation_reduce(sb(8, 6), nl.exp, made(8, 6), nl.add, sb(8, 2 if b else 1))),
    Rule("activate2-v4", "`activate2` needs NeuronCore-v4", ISA % "activate2", "?", lambda b: nisa.activate2(sb(8, 6), nl.exp, made(8, 6), 1.0, 2.0, nl.multiply, nl.add), **V3),
    Rule("exponential-v4", "`exponential` needs NeuronCore-v4", ISA % "exponential", "?", lambda b: nisa.exponential(sb(8, 6), made(8, 6)), **V3),
    Rule("rand2-v4", "`rand2` needs NeuronCore-v4", ISA % "rand2", "?", lambda b: nisa.rand2(sb(8, 6), 0.0, 1.0), **V3),
    Rule("iota-elements", "`dst` of `iota` has as many elements as `pattern`", ISA % "iota", "?", lambda b: nisa.iota(sb(8, 6, dtype=I32), [[1, 5 if b else 6]])),
    Rule("iota-sbuf", "`iota` writes SBUF", ISA % "iota", "?", lambda b: nisa.iota((ps if b else sb)(8, 6, dtype=I32), [[1, 6]])),
    Rule("affine-sbuf", "`affine_select` reads SBUF", ISA % "affine_select", "?", lambda b: nisa.affine_select(sb(8, 6), [[1, 6]], 0, made(8, 6, buffer=nl.psum if b else nl.sbuf), 0.0)),
    Rule("affine-elements", "`affine_select`'s tile has as many elements as `pattern`", ISA % "affine_select", "?", lambda b: nisa.affine_select(sb(8, 6), [[1, 5 if b else 6]], 0, made(8, 6), 0.0)),
    Rule("gather-index-type", "`index` of `local_gather` is uint16", ISA % "local_gather", "?", lambda b: gather(dtype=U32 if b else U16)),
    Rule("gather-type", "`local_gather` keeps the dtype", ISA % "local_gather", "?", lambda b: gather(d=BF16 if b else F32)),
    Rule("gather-rows", "`local_gather` takes a multiple of 16 partitions", ISA % "local_gather", "?", lambda b: gather((24, 8), (24, 4), (24, 64)) if b else gather()),
    Rule("gather-match", "`src_buffer` and `index` of `local_gather` have as many partitions", ISA % "local_gather", "?", lambda b: gather((32 if b else 16, 8))),
    Rule("gather-run", "`num_elem_per_idx` is a power of 2 up to 32", ISA % "local_gather", "?", lambda b: gather(dst=(16, 192 if b else 128), num_elem_per_idx=3 if b else 2)),
    Rule("gather-valid", "`num_valid_indices` isn't more than there are", ISA % "local_gather", "?", lambda b: gather(dst=(16, 65 if b else 64), num_valid_indices=65 if b else 64)),
    Rule("gather-many", "`local_gather` takes at most 4096 indices per core", ISA % "local_gather", "?", lambda b: gather(index=(16, 272 if b else 256), dst=(16, 16 * (272 if b else 256)))),
    Rule("n-gather-index", "`indices` of `nc_n_gather` is uint32", ISA % "nc_n_gather", "?", lambda b: nisa.nc_n_gather(sb(8, 4), made(8, 6), made(8, 4, dtype=I32 if b else U32))),
    Rule("n-gather-type", "`nc_n_gather` keeps the dtype", ISA % "nc_n_gather", "?", lambda b: nisa.nc_n_gather(sb(8, 4, dtype=BF16 if b else F32), made(8, 6), made(8, 4, dtype=U32))),
    Rule("n-gather-psum", "`nc_n_gather` reads SBUF", ISA % "nc_n_gather", "?", lambda b: nisa.nc_n_gather(sb(8, 4), made(8, 6, buffer=nl.psum if b else nl.sbuf), made(8, 4, dtype=U32))),
    Rule("bn-stats-size", "`bn_stats` takes at most 512 elements per partition", ISA % "bn_stats", "?", lambda b: nisa.bn_stats(sb(8, 6), made(8, 513 if b else 512))),
    Rule("bn-aggr-size", "`bn_aggr` takes a multiple of 3 elements per partition", ISA % "bn_aggr", "?", lambda b: nisa.bn_aggr(sb(8, 2), made(8, 7 if b else 6))),
    Rule("scan-psum", "`data0` and `data1` aren't both in PSUM", ISA % "tensor_tensor_scan", "?", lambda b: nisa.tensor_tensor_scan(sb(8, 6), made(8, 6, buffer=nl.psum), made(8, 6, buffer=nl.psum if b else nl.sbuf), 0.0, nl.multiply, nl.add)),
    Rule("scan-size", "`data0` and `data1` have as many elements", ISA % "tensor_tensor_scan", "?", lambda b: nisa.tensor_tensor_scan(sb(8, 6), made(8, 6), made(8, 5 if b else 6), 0.0, nl.multiply, nl.add)),
    Rule("stt-bitwise", "`scalar_tensor_tensor` has arithmetic operators", ISA % "scalar_tensor_tensor", "?", lambda b: stt(op0=nl.bitwise_and if b else nl.add)),
    Rule("stt-psum", "`data` and `operand1` aren't both in PSUM", ISA % "scalar_tensor_tensor", "?", lambda b: stt(pa=nl.psum, pb=nl.psum if b else nl.sbuf)),
    Rule("stt-shape", "`operand1` has as many elements as `data`", ISA % "scalar_tensor_tensor", "?", lambda b: stt(second=(8, 1 if b else 6))),
    Rule("shuffle-type", "`nc_stream_shuffle` keeps the dtype", ISA % "nc_stream_shuffle", "?", lambda b: shuffle(d=BF16 if b else F32)),
    Rule("shuffle-mask", "`shuffle_mask` has 32 entries", ISA % "nc_stream_shuffle", "?", lambda b: shuffle(mask=list(range(31)) if b else None)),
    Rule("shuffle-mask-values", "`shuffle_mask` names partitions of a quadrant, or 255", ISA % "nc_stream_shuffle", "?", lambda b: shuffle(mask=[32 if b else 255] + list(range(1, 32)))),
    Rule("shuffle-elements", "`nc_stream_shuffle` keeps the number of elements", ISA % "nc_stream_shuffle", "?", lambda b: shuffle(columns=5 if b else 6)),
    Rule("rng-type", "`rng` makes integers", ISA % "rng", "?", lambda b: nisa.rng(sb(8, 6, dtype=F32 if b else U32))),
    Rule("dropout-prob", "`prob` is float32", ISA % "dropout", "?", lambda b: nisa.dropout(sb(8, 6), made(8, 6), made(8, 1, dtype=BF16 if b else F32))),
    Rule("dropout-type", "`dropout` keeps the dtype", ISA % "dropout", "?", lambda b: nisa.dropout(sb(8, 6, dtype=BF16 if b else F32), made(8, 6), 0.5)),
    Rule("seed-shape", "`set_rng_seed` takes one element", ISA % "set_rng_seed", "?", lambda b: nisa.set_rng_seed(made(1, 2 if b else 1, dtype=U32))),
    Rule("seed-bits", "`set_rng_seed` takes 32 bits", ISA % "set_rng_seed", "?", lambda b: nisa.set_rng_seed(made(1, 1, dtype=U16 if b else U32))),
    Rule("state-type", "`rand_set_state` takes uint32", ISA % "rand_set_state", "?", lambda b: nisa.rand_set_state(made(128, 6, dtype=I32 if b else U32))),
    Rule("state-size", "`rand_set_state` takes 6 elements for the GpSimd engine", ISA % "rand_set_state", "?", lambda b: nisa.rand_set_state(made(128, 5 if b else 6, dtype=U32))),
    Rule("state-v3", "`rand_set_state` needs NeuronCore-v3", ISA % "rand_set_state", "?", lambda b: nisa.rand_set_state(made(128, 6, dtype=U32)), platform="trn1", good_on="trn2"),
    Rule("state-vector-v4", "Random states of the Vector engine need NeuronCore-v4", ISA % "rand_set_state", "?", lambda b: nisa.rand_set_state(made(128, 24, dtype=U32), engine=E.vector), **V3),
    Rule("max8-size", "`max8` reads 8 to 16,384 elements", ISA % "max8", "?", lambda b: nisa.max8(sb(8, 8), made(8, 7 if b else 8))),
    Rule("find8-values", "`nc_find_index8` looks for 8 values", ISA % "nc_find_index8", "?", lambda b: nisa.nc_find_index8(sb(8, 8, dtype=U32), made(8, 64), made(8, 7 if b else 8))),
    Rule("find8-size", "`nc_find_index8` reads 8 to 16,384 elements", ISA % "nc_find_index8", "?", lambda b: nisa.nc_find_index8(sb(8, 8, dtype=U32), made(8, 7 if b else 8), made(8, 8))),
    Rule("replace8-values", "`nc_match_replace8` looks for 8 values", ISA % "nc_match_replace8", "?", lambda b: nisa.nc_match_replace8(sb(8, 64), made(8, 64), made(8, 9 if b else 8), 0.0)),
    Rule("bounds-row", "`sequence_bounds` works on one partition", ISA % "sequence_bounds", "?", lambda b: nisa.sequence_bounds(sb(2 if b else 1, 2, 6), made(2 if b else 1, 6))),
    Rule("bounds-type", "`sequence_bounds` takes float32 and int32", ISA % "sequence_bounds", "?", lambda b: nisa.sequence_bounds(sb(1, 2, 6), made(1, 6, dtype=BF16 if b else F32))),
    Rule("select-scalar", "`select_reduce` keeps the running maximum", ISA % "select_reduce", "?", lambda b: select(op=nl.add if b else nl.maximum, res=sb(8, 1), reduce_cmd=nisa.reduce_cmd.reset_reduce)),
    Rule("select-column", "`reduce_res` of `select_reduce` is one element per partition", ISA % "select_reduce", "?", lambda b: select(res=sb(8, 2 if b else 1), reduce_cmd=nisa.reduce_cmd.reset_reduce)),
    Rule("range-v3", "`range_select` needs NeuronCore-v3", "release-notes/components/nki.rst (2.23)", "?", lambda b: ranges(), platform="trn1", good_on="trn2"),
    Rule("range-operator", "`range_select` compares", ISA % "range_select", "?", lambda b: ranges(op=nl.add if b else nl.greater)),
    Rule("range-bounds", "Bounds of `range_select` are float32", ISA % "range_select", "?", lambda b: ranges(bound=BF16 if b else F32)),
    Rule("range-columns", "A bound of `range_select` is one element per partition", ISA % "range_select", "?", lambda b: ranges(columns=2 if b else 1)),
    Rule("range-fill", "`range_select` fills with float32's lowest", ISA % "range_select", "?", lambda b: ranges(**({"on_false_value": 0.0} if b else {}))),
    Rule("range-reduce", "`range_select` keeps the maximum", ISA % "range_select", "?", lambda b: ranges(reduce_op=nl.add if b else nl.maximum)),
    Rule("nonzero-size", "`dst` of `nonzero_with_count` has one element more than `src`", ISA % "nonzero_with_count", "?", lambda b: nisa.nonzero_with_count(sb(16, 6 if b else 7, dtype=I32), made(16, 6))),
    Rule("nonzero-type", "`dst` of `nonzero_with_count` is int32", ISA % "nonzero_with_count", "?", lambda b: nisa.nonzero_with_count(sb(16, 7, dtype=F32 if b else I32), made(16, 6))),
    Rule("topk-type", "`topk` takes bfloat16", ISA % "topk", "?", lambda b: topk(s=F32 if b else BF16)),
    Rule("topk-index", "Indices of `topk` are uint32", ISA % "topk", "?", lambda b: topk(i=I32 if b else U32)),
    Rule("topk-n", "`n` of `topk` is at least 8", ISA % "topk", "?", lambda b: topk(n=7 if b else 8, k=4)),
    Rule("topk-k", "`topk` finds at most `n` values", ISA % "topk", "?", lambda b: topk(n=16, k=17 if b else 16)),
    Rule("topk-rows", "`topk` takes a multiple of 16 partitions", ISA % "topk", "?", lambda b: topk(p=24 if b else 16)),
    Rule("topk-room", "`src` of `topk` holds `n` elements", ISA % "topk", "?", lambda b: topk(f=3 if b else 4, n=64)),
    Rule("reduce-chain", "`load_reduce` has a `reduce_init`", ISA % "tensor_scalar_reduce", "?", lambda b: nisa.tensor_scalar_reduce(sb(8, 6), made(8, 6), nl.multiply, 2.0, nl.add, sb(8, 1), reduce_cmd=nisa.reduce_cmd.load_reduce, **({} if b else {"reduce_init": made(8, 1)}))),
    Rule("reduce-bitwise-ts", "`tensor_scalar_reduce` has arithmetic operators", ISA % "tensor_scalar_reduce", "?", lambda b: nisa.tensor_scalar_reduce(sb(8, 6), made(8, 6), nl.bitwise_and if b else nl.multiply, 2.0, nl.add, sb(8, 1))),
    Rule("indirect-v4", "`.indirect()` views need NeuronCore-v4", "nki/api/nki/isa (tensor_copy)", "?", lambda b: nisa.tensor_copy(sb(32, 6), made(32, 6).indirect(made(32, 1, dtype=U32))), **V3),
    Rule("indirect-data2", "`data2` of `tensor_tensor` isn't an `.indirect()` view", ISA % "tensor_tensor", "?", lambda b: nisa.tensor_tensor(sb(32, 6), made(32, 6), made(32, 6).indirect(made(32, 1, dtype=U32)) if b else made(32, 6), nl.add), **V4),
    Rule("register-one", "`register_load` reads one element", ISA % "register_load", "?", lambda b: nisa.register_load(nisa.register_alloc(0), made(1, 2 if b else 1, dtype=I32))),
    Rule("register-bits", "A register holds 32 bits", "nki/get-started/nki-language-guide.rst", "?", lambda b: nisa.register_alloc(2**32 if b else 2**31 - 1)),
    Rule("send-v3", "`sendrecv` needs two cores", ISA % "sendrecv", "?", lambda b: nisa.sendrecv(made(8, 6), sb(8, 6), 1 - nl.program_id(0) if not b else 2, 1 - nl.program_id(0), 0), lnc=2),
    Rule("send-type", "`src` and `dst` of `sendrecv` have one dtype", ISA % "sendrecv", "?", lambda b: nisa.sendrecv(made(8, 6), sb(8, 6, dtype=BF16 if b else F32), 1 - nl.program_id(0), 1 - nl.program_id(0), 0), lnc=2),
    Rule("send-shape", "`src` and `dst` of `sendrecv` have one shape", ISA % "sendrecv", "?", lambda b: nisa.sendrecv(made(8, 6), sb(8, 5 if b else 6), 1 - nl.program_id(0), 1 - nl.program_id(0), 0), lnc=2),
    Rule("send-gpsimd", "The GpSimd engine's DMA sends 1024 bytes of a 32-bit type per partition", ISA % "sendrecv", "?", lambda b: nisa.sendrecv(made(8, 257 if b else 256), sb(8, 257 if b else 256), 1 - nl.program_id(0), 1 - nl.program_id(0), 0, dma_engine=nisa.dma_engine.gpsimd_dma), lnc=2),
    Rule("send-memory", "`sendrecv` works in SBUF", ISA % "sendrecv", "?", lambda b: nisa.sendrecv(made(8, 6, buffer=nl.psum if b else nl.sbuf), sb(8, 6), 1 - nl.program_id(0), 1 - nl.program_id(0), 0), lnc=2),
    Rule("barrier-shared", "`core_barrier` orders a tensor in shared_hbm", ISA % "core_barrier", "?", lambda b: nisa.core_barrier(nl.ndarray((8, 6), dtype=F32, buffer=nl.private_hbm if b else nl.shared_hbm), (0, 1)), lnc=2),
    Rule("keyword", "Keywords are those of the documentation", "release-notes/components/nki.rst (0.2.0)", "?", lambda b: nisa.memset(sb(8, 6), **{"valeu" if b else "value": 0.0})),
    Rule("engine-name", "`engine` is one that has the instruction", ISA % "tensor_tensor", "?", lambda b: tt(engine=E.tensor if b else E.vector)),
    Rule("empty", "Operands have elements", ISA % "tensor_copy", "?", lambda b: nisa.tensor_copy(sb(8, 6)[:, 0:0] if b else sb(8, 6), made(8, 6)[:, 0:0] if b else made(8, 6))),
]
