"""The Vector engine: fills, copies, operators and reductions."""

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import BF16, F32, I16, I32, U8, Rule, hbm, made, sb, tt

ISA = "nki/api/nki/isa (%s)"
E = nisa.engine
V3, V4 = {"platform": "trn2", "good_on": "trn3"}, {"platform": "trn3"}


def ts(op0=nl.multiply, operand0=2.0, d=F32, s=F32, **options):
    nisa.tensor_scalar(sb(8, 6, dtype=d), made(8, 6, dtype=s), op0, operand0, **options)


def cumulative(op0=nl.multiply, op1=nl.add, d=F32, **options):
    nisa.tensor_scalar_cumulative(sb(8, 6, dtype=d), made(8, 6), op0, op1, 2.0, **options)


def stt(op0=nl.add, op1=nl.multiply, pa=nl.sbuf, pb=nl.sbuf, second=(8, 6)):
    nisa.scalar_tensor_tensor(
        sb(8, 6), made(8, 6, buffer=pa), op0, 1.0, op1, made(*second, buffer=pb)
    )


RULES = [
    Rule(
        "memset-kind",
        "`memset` fills integers with integers",
        "release-notes/components/nki.rst (0.3.0)",
        "value=2.5 for dtype int32; allowed: whole numbers",
        lambda b: nisa.memset(sb(8, 6, dtype=I32), value=2.5 if b else 2),
    ),
    Rule(
        "memset-float-literal",
        "`memset` fills integers with integers, not with 2.0",
        "release-notes/components/nki.rst (0.3.0)",
        "an integer type is filled with an int, such as 2",
        lambda b: nisa.memset(sb(8, 6, dtype=I32), value=2.0 if b else 2),
        warns="published kernels do it",
        code="fill-float",
    ),
    Rule(
        "memset-range",
        "`memset` fills with what the dtype can hold",
        ISA % "memset",
        "value=256 for dtype uint8",
        lambda b: nisa.memset(sb(8, 6, dtype=U8), value=256 if b else 255),
    ),
    Rule(
        "memset-packed",
        "`memset` fills packed types with 0",
        "release-notes/components/nki.rst (0.3.0)",
        "fill a view of the tile as an integer type for other bit patterns",
        lambda b: nisa.memset(sb(8, 8, dtype=nl.float8_e5m2_x4), value=1 if b else 0),
        **V4,
    ),
    Rule(
        "copy-elements",
        "`tensor_copy` keeps the number of elements",
        ISA % "tensor_copy",
        "operands must have the same number of elements per partition",
        lambda b: nisa.tensor_copy(sb(8, 7 if b else 6), made(8, 6)),
    ),
    Rule(
        "copy-partitions",
        "`tensor_copy` keeps the number of partitions",
        ISA % "tensor_copy",
        "operands must have the same number of partitions",
        lambda b: nisa.tensor_copy(sb(4 if b else 8, 12 if b else 6), made(8, 6)),
    ),
    Rule(
        "copy-hbm",
        "Engines don't reach HBM",
        "nki/get-started/about/memory-hierarchy-overview.rst",
        "src is in private_hbm",
        lambda b: nisa.tensor_copy(sb(8, 6), hbm(8, 6) if b else made(8, 6)),
    ),
    Rule(
        "copy-scalar-v2",
        "The Scalar engine copies from NeuronCore-v3 on",
        ISA % "tensor_copy",
        "the Scalar engine of NeuronCore-v2 has no tensor_copy",
        lambda b: nisa.tensor_copy(sb(8, 6), made(8, 6), engine=E.scalar),
        platform="trn1",
        good_on="trn2",
    ),
    Rule(
        "copy-gpsimd-psum",
        "The GpSimd engine doesn't reach PSUM",
        ISA % "tensor_copy",
        "src is in PSUM, which the GpSimd engine can't access; use the Vector or Scalar engine",
        lambda b: nisa.tensor_copy(
            sb(8, 6), made(8, 6, buffer=nl.psum if b else nl.sbuf), engine=E.gpsimd
        ),
    ),
    Rule(
        "predicate-type",
        "`predicate` is uint8, uint16 or uint32",
        ISA % "tensor_copy_predicated",
        "predicate has dtype float32; allowed: bool_, uint16, uint32, uint8",
        lambda b: nisa.tensor_copy_predicated(
            made(8, 6), made(8, 6), made(8, 6, dtype=F32 if b else U8)
        ),
    ),
    Rule(
        "predicate-src-type",
        "`src` and `dst` of `tensor_copy_predicated` have one dtype",
        ISA % "tensor_copy_predicated",
        "src has dtype bfloat16, dst float32",
        lambda b: nisa.tensor_copy_predicated(
            made(8, 6), made(8, 6, dtype=BF16 if b else F32), made(8, 6, dtype=U8)
        ),
    ),
    Rule(
        "tt-partitions",
        "Tiles of `tensor_tensor` have as many partitions",
        ISA % "tensor_tensor",
        "operands must have the same number of partitions",
        lambda b: tt(second=(4 if b else 8, 6)),
    ),
    Rule(
        "tt-elements",
        "Tiles of `tensor_tensor` have as many elements per partition",
        ISA % "tensor_tensor",
        "operands must have the same number of elements per partition",
        lambda b: tt(second=(8, 1 if b else 6)),
    ),
    Rule(
        "tt-psum",
        "`data1` and `data2` aren't both in PSUM",
        ISA % "tensor_tensor",
        "data1 and data2 are both in PSUM",
        lambda b: tt(pa=nl.psum, pb=nl.psum if b else nl.sbuf),
    ),
    Rule(
        "tt-bitwise",
        "Bitwise operators take integers",
        ISA % "tensor_tensor",
        "dst has dtype float32",
        lambda b: tt(nl.bitwise_and, *([F32] * 3 if b else [I32] * 3)),
    ),
    Rule(
        "tt-power-psum",
        "`power` runs on the GpSimd engine, which doesn't reach PSUM",
        ISA % "tensor_tensor",
        "data1 is in PSUM, which the GpSimd engine can't access; use the Vector or Scalar",
        lambda b: tt(nl.power, pa=nl.psum if b else nl.sbuf),
    ),
    Rule(
        "tt-operator",
        "`op` of `tensor_tensor` is one of its operators",
        "nki/api/nki.api.shared.rst",
        "op=nl.exp; allowed: abs_max, abs_min, add, bitwise_and, bitwise_or, bitwise_xor",
        lambda b: tt(nl.exp if b else nl.add),
    ),
    Rule(
        "ts-column",
        "A tile as `operand0` is one element per partition",
        ISA % "tensor_scalar",
        "operand0 has shape (8, 2); allowed: a number or a tile of shape (8, 1)",
        lambda b: ts(operand0=made(8, 2 if b else 1)),
    ),
    Rule(
        "ts-column-rows",
        "A tile as `operand0` has a row per partition",
        ISA % "tensor_scalar",
        "operand0 has shape (1, 1); allowed: a number or a tile of shape (8, 1)",
        lambda b: ts(operand0=made(1 if b else 8, 1)),
    ),
    Rule(
        "ts-float32",
        "`operand0` is float32 for arithmetic operators",
        ISA % "tensor_scalar" + "; kernel agents' pitfalls (TensorScalarPtr)",
        "arith immediate dtype must be fp32)",
        lambda b: ts(operand0=made(8, 1, dtype=BF16 if b else F32)),
        warns="published kernels do it",
        code="scalar-operand-dtype",
    ),
    Rule(
        "ts-kinds",
        "`op0` and `op1` are both bitwise or both arithmetic",
        ISA % "tensor_scalar",
        "both must be bitwise or both arithmetic",
        lambda b: nisa.tensor_scalar(
            sb(8, 6, dtype=I32),
            made(8, 6, dtype=I32),
            nl.bitwise_and,
            3,
            op1=nl.add if b else nl.bitwise_or,
            operand1=1,
        ),
    ),
    Rule(
        "ts-bitwise-type",
        "Bitwise operators of `tensor_scalar` take integers",
        ISA % "tensor_scalar",
        "dst has dtype float32",
        lambda b: ts(nl.bitwise_and, 3, *([F32, F32] if b else [I32, I32])),
    ),
    Rule(
        "ts-bitwise-engine",
        "Bitwise operators run on the Vector engine",
        ISA % "tensor_scalar",
        "op0=bitwise_and, op1=None on the GpSimd engine",
        lambda b: ts(nl.bitwise_and, 3, I32, I32, engine=E.gpsimd if b else E.vector),
    ),
    Rule(
        "ts-scalar-pairs",
        "The Scalar engine of trn2 multiplies, adds, or multiplies and adds",
        ISA % "tensor_scalar",
        "op0=multiply, op1=subtract on the Scalar engine of trn2",
        lambda b: ts(op1=nl.subtract if b else nl.add, operand1=1.0, engine=E.scalar),
    ),
    Rule(
        "ts-unused",
        "`operand1` is None without `op1`",
        ISA % "tensor_scalar",
        "operand1 is given, op1 is None",
        lambda b: ts(**({"operand1": 1.0} if b else {})),
    ),
    Rule(
        "ts-unary",
        "A unary `op0` takes None or 0",
        ISA % "tensor_scalar",
        "operand0=2.0 for the unary nl.abs",
        lambda b: ts(nl.abs, 2.0 if b else 0),
    ),
    Rule(
        "ts-v4-square",
        "`square` and `relu` as `op0` need NeuronCore-v4",
        "release-notes/components/nki.rst (0.4.0)",
        "nl.square needs NeuronCore-v4 or later",
        lambda b: ts(nl.square, 0),
        good_on="trn3",
    ),
    Rule(
        "reduce-partitions",
        "`tensor_reduce` doesn't reduce partitions",
        ISA % "tensor_reduce",
        "axis=[0] of a tile with 2 dimensions; allowed: the last one or several of dimensions 1",
        lambda b: nisa.tensor_reduce(sb(8, 1), nl.add, made(8, 6), axis=0 if b else 1),
    ),
    Rule(
        "reduce-last",
        "`tensor_reduce` reduces the last dimensions",
        ISA % "tensor_reduce",
        "axis=[1] of a tile with 3 dimensions; allowed: the last one or several of dimensions 1",
        lambda b: nisa.tensor_reduce(
            sb(8, 3), nl.add, made(8, 2, 3) if b else made(8, 3, 2), axis=1 if b else 2
        ),
    ),
    Rule(
        "reduce-dst",
        "`dst` of `tensor_reduce` holds what is left",
        ISA % "tensor_reduce",
        "dst has 2 elements per partition",
        lambda b: nisa.tensor_reduce(sb(8, 2 if b else 1), nl.add, made(8, 6), axis=1),
    ),
    Rule(
        "reduce-bitwise",
        "Bitwise reductions take integers",
        ISA % "tensor_reduce",
        "dst has dtype float32",
        lambda b: nisa.tensor_reduce(
            sb(8, 1, dtype=F32 if b else I32),
            nl.bitwise_or,
            made(8, 6, dtype=F32 if b else I32),
            axis=1,
        ),
    ),
    Rule(
        "partition-reduce",
        "`tensor_partition_reduce` makes one partition",
        ISA % "tensor_partition_reduce",
        "dst has 2 partitions",
        lambda b: nisa.tensor_partition_reduce(sb(2 if b else 1, 6), nl.add, made(8, 6)),
    ),
    Rule(
        "cumulative-op0",
        "`op0` of `tensor_scalar_cumulative` is arithmetic",
        ISA % "tensor_scalar_cumulative",
        "op0=nl.bitwise_and; allowed: abs, abs_max, abs_min, add, bypass, divide, equal, fmod",
        lambda b: cumulative(op0=nl.bitwise_and if b else nl.multiply),
    ),
    Rule(
        "cumulative-op1",
        "`op1` of `tensor_scalar_cumulative` adds, subtracts, multiplies or compares",
        ISA % "tensor_scalar_cumulative",
        "op1=nl.divide; allowed: add, max, maximum, min, minimum, multiply, subtract",
        lambda b: cumulative(op1=nl.divide if b else nl.add),
    ),
    Rule(
        "cumulative-type",
        "`tensor_scalar_cumulative` has no 32-bit integers",
        ISA % "tensor_scalar_cumulative",
        "dst has dtype int32",
        lambda b: cumulative(d=I32 if b else I16),
    ),
    Rule(
        "scan-psum",
        "`data0` and `data1` aren't both in PSUM",
        ISA % "tensor_tensor_scan",
        "data0 and data1 are both in PSUM",
        lambda b: nisa.tensor_tensor_scan(
            sb(8, 6),
            made(8, 6, buffer=nl.psum),
            made(8, 6, buffer=nl.psum if b else nl.sbuf),
            0.0,
            nl.multiply,
            nl.add,
        ),
    ),
    Rule(
        "scan-size",
        "`data0` and `data1` have as many elements",
        ISA % "tensor_tensor_scan",
        "operands must have the same number of elements per partition",
        lambda b: nisa.tensor_tensor_scan(
            sb(8, 6), made(8, 6), made(8, 5 if b else 6), 0.0, nl.multiply, nl.add
        ),
    ),
    Rule(
        "stt-bitwise",
        "`scalar_tensor_tensor` has arithmetic operators",
        ISA % "scalar_tensor_tensor",
        "op0=nl.bitwise_and; allowed: abs, abs_max, abs_min, add, bypass, divide, equal, fmod",
        lambda b: stt(op0=nl.bitwise_and if b else nl.add),
    ),
    Rule(
        "stt-psum",
        "`data` and `operand1` aren't both in PSUM",
        ISA % "scalar_tensor_tensor",
        "data and operand1 are both in PSUM",
        lambda b: stt(pa=nl.psum, pb=nl.psum if b else nl.sbuf),
    ),
    Rule(
        "stt-shape",
        "`operand1` has as many elements as `data`",
        ISA % "scalar_tensor_tensor",
        "operands must have the same number of elements per partition",
        lambda b: stt(second=(8, 1 if b else 6)),
    ),
    Rule(
        "reduce-chain",
        "`load_reduce` has a `reduce_init`",
        ISA % "tensor_scalar_reduce",
        "reduce_cmd.load_reduce needs it",
        lambda b: nisa.tensor_scalar_reduce(
            sb(8, 6),
            made(8, 6),
            nl.multiply,
            2.0,
            nl.add,
            sb(8, 1),
            reduce_cmd=nisa.reduce_cmd.load_reduce,
            **({} if b else {"reduce_init": made(8, 1)}),
        ),
    ),
    Rule(
        "reduce-bitwise-ts",
        "`tensor_scalar_reduce` has arithmetic operators",
        ISA % "tensor_scalar_reduce",
        "op0=nl.bitwise_and; allowed: abs, abs_max, abs_min, add, bypass, divide, equal, fmod",
        lambda b: nisa.tensor_scalar_reduce(
            sb(8, 6), made(8, 6), nl.bitwise_and if b else nl.multiply, 2.0, nl.add, sb(8, 1)
        ),
    ),
]
