"""Activations, random numbers, statistics and selections."""

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.refusals.rule import BF16, F32, I32, U8, U16, U32, Rule, made, ps, sb

ISA = "nki/api/nki/isa (%s)"
E = nisa.engine
V3, V4 = {"platform": "trn2", "good_on": "trn3"}, {"platform": "trn3"}


def act(op=nl.exp, s=F32, d=F32, columns=6, **options):
    nisa.activation(sb(8, columns, dtype=d), op, made(8, 6, dtype=s), **options)


def select(on_false=0.0, op=nl.maximum, p=U8, res=None, **options):
    nisa.select_reduce(
        sb(8, 6), made(8, 6, dtype=p), made(8, 6), on_false, reduce_res=res, reduce_op=op, **options
    )


def ranges(op=nl.greater, t=F32, bound=F32, columns=1, **options):
    nisa.range_select(
        sb(8, 6, dtype=t),
        made(8, 6, dtype=t),
        op,
        nl.less,
        made(8, columns, dtype=bound),
        made(8, 1, dtype=bound),
        **options,
    )


RULES = [
    Rule(
        "activation-function",
        "`op` of `activation` is an activation function",
        "nki/api/nki.api.shared.rst",
        "op=nl.add; allowed: abs, absolute, arctan, copy, erf, erf_dx, exp, gelu",
        lambda b: act(nl.add if b else nl.exp),
    ),
    Rule(
        "activation-elements",
        "`activation` keeps the number of elements",
        ISA % "activation",
        "operands must have the same number of elements per partition",
        lambda b: act(columns=5 if b else 6),
    ),
    Rule(
        "activation-scale-type",
        "`scale` is float32",
        ISA % "activation",
        "scale has dtype bfloat16",
        lambda b: act(scale=made(8, 1, dtype=BF16 if b else F32)),
    ),
    Rule(
        "activation-bias-column",
        "`bias` is one element per partition",
        "release-notes/components/nki.rst (0.2.0)",
        "bias has shape (8, 6); allowed: a number or a tile of shape (8, 1)",
        lambda b: act(bias=made(8, 6 if b else 1)),
    ),
    Rule(
        "activation-bias-rows",
        "`bias` has a row per partition",
        ISA % "activation" + "; reports of (1, 1) tiles",
        "bias has shape (1, 1); allowed: a number or a tile of shape (8, 1)",
        lambda b: act(bias=made(1 if b else 8, 1)),
    ),
    Rule(
        "activation-bias-v2",
        "`bias` is a column on NeuronCore-v2",
        ISA % "activation" + "; trnsci/trnrand NCC_IBIR605",
        "a number as bias (got 1e-05; a (P, 1) tile does it) needs NeuronCore-v3 or later; the",
        lambda b: act(nl.log, bias=1e-5 if b else made(8, 1)),
        platform="trn1",
    ),
    Rule(
        "activation-reduce-op",
        "`activation` reduces by adding",
        ISA % "activation",
        "reduce_op=nl.multiply; allowed: add",
        lambda b: act(
            reduce_op=nl.multiply if b else nl.add,
            reduce_res=sb(8, 1),
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        ),
    ),
    Rule(
        "activation-reduce-res",
        "`reduce_res` is one element per partition",
        ISA % "activation_reduce",
        "reduce_res has shape (8, 2); allowed: (8, 1), one element per partition",
        lambda b: nisa.activation_reduce(
            sb(8, 6), nl.exp, made(8, 6), nl.add, sb(8, 2 if b else 1)
        ),
    ),
    Rule(
        "activate2-v4",
        "`activate2` needs NeuronCore-v4",
        ISA % "activate2",
        "nisa.activate2 needs NeuronCore-v4 or later",
        lambda b: nisa.activate2(sb(8, 6), nl.exp, made(8, 6), 1.0, 2.0, nl.multiply, nl.add),
        **V3,
    ),
    Rule(
        "exponential-v4",
        "`exponential` needs NeuronCore-v4",
        ISA % "exponential",
        "nisa.exponential needs NeuronCore-v4 or later",
        lambda b: nisa.exponential(sb(8, 6), made(8, 6)),
        **V3,
    ),
    Rule(
        "rand2-v4",
        "`rand2` needs NeuronCore-v4",
        ISA % "rand2",
        "nisa.rand2 needs NeuronCore-v4 or later",
        lambda b: nisa.rand2(sb(8, 6), 0.0, 1.0),
        **V3,
    ),
    Rule(
        "iota-elements",
        "`dst` of `iota` has as many elements as `pattern`",
        ISA % "iota",
        "pattern [[1, 5]] has 5 values, dst has 6 elements per partition",
        lambda b: nisa.iota(sb(8, 6, dtype=I32), [[1, 5 if b else 6]]),
    ),
    Rule(
        "iota-sbuf",
        "`iota` writes SBUF",
        ISA % "iota",
        "dst is in psum",
        lambda b: nisa.iota((ps if b else sb)(8, 6, dtype=I32), [[1, 6]]),
    ),
    Rule(
        "affine-sbuf",
        "`affine_select` reads SBUF",
        ISA % "affine_select",
        "on_true_tile is in psum",
        lambda b: nisa.affine_select(
            sb(8, 6), [[1, 6]], 0, made(8, 6, buffer=nl.psum if b else nl.sbuf), 0.0
        ),
    ),
    Rule(
        "affine-elements",
        "`affine_select`'s tile has as many elements as `pattern`",
        ISA % "affine_select",
        "pattern [[1, 5]] has 5 values, dst has 6 elements per partition",
        lambda b: nisa.affine_select(sb(8, 6), [[1, 5 if b else 6]], 0, made(8, 6), 0.0),
    ),
    Rule(
        "bn-stats-size",
        "`bn_stats` takes at most 512 elements per partition",
        ISA % "bn_stats",
        "data has 513 elements per partition",
        lambda b: nisa.bn_stats(sb(8, 6), made(8, 513 if b else 512)),
    ),
    Rule(
        "bn-aggr-size",
        "`bn_aggr` takes a multiple of 3 elements per partition",
        ISA % "bn_aggr",
        "data has 7 elements per partition",
        lambda b: nisa.bn_aggr(sb(8, 2), made(8, 7 if b else 6)),
    ),
    Rule(
        "rng-type",
        "`rng` makes integers",
        ISA % "rng",
        "dst has dtype float32; allowed: int16, int32, int8, uint16, uint32, uint8",
        lambda b: nisa.rng(sb(8, 6, dtype=F32 if b else U32)),
    ),
    Rule(
        "dropout-prob",
        "`prob` is float32 if the data are integers",
        ISA % "dropout",
        "prob has dtype bfloat16 with data of int32",
        lambda b: nisa.dropout(
            sb(8, 6, dtype=I32), made(8, 6, dtype=I32), made(8, 1, dtype=BF16 if b else F32)
        ),
    ),
    Rule(
        "dropout-type",
        "`dropout` keeps the dtype",
        ISA % "dropout",
        "dst has dtype bfloat16, data float32",
        lambda b: nisa.dropout(sb(8, 6, dtype=BF16 if b else F32), made(8, 6), 0.5),
    ),
    Rule(
        "seed-shape",
        "`set_rng_seed` takes one element",
        ISA % "set_rng_seed",
        "src_seeds has shape (1, 2); allowed: (1, 1)",
        lambda b: nisa.set_rng_seed(made(1, 2 if b else 1, dtype=U32)),
    ),
    Rule(
        "seed-bits",
        "`set_rng_seed` takes 32 bits",
        ISA % "set_rng_seed",
        "src_seeds has dtype uint16",
        lambda b: nisa.set_rng_seed(made(1, 1, dtype=U16 if b else U32)),
    ),
    Rule(
        "state-type",
        "`rand_set_state` takes uint32",
        ISA % "rand_set_state",
        "src_seeds has dtype int32",
        lambda b: nisa.rand_set_state(made(128, 6, dtype=I32 if b else U32)),
    ),
    Rule(
        "state-size",
        "`rand_set_state` takes 6 elements for the GpSimd engine",
        ISA % "rand_set_state",
        "src_seeds has shape (128, 5); allowed on gpsimd: (partitions, 6)",
        lambda b: nisa.rand_set_state(made(128, 5 if b else 6, dtype=U32)),
    ),
    Rule(
        "state-v3",
        "`rand_set_state` needs NeuronCore-v3",
        ISA % "rand_set_state",
        "nisa.rand_set_state needs NeuronCore-v3 or later",
        lambda b: nisa.rand_set_state(made(128, 6, dtype=U32)),
        platform="trn1",
        good_on="trn2",
    ),
    Rule(
        "state-vector-v4",
        "Random states of the Vector engine need NeuronCore-v4",
        ISA % "rand_set_state",
        "the random state of the Vector engine needs NeuronCore-v4 or later",
        lambda b: nisa.rand_set_state(made(128, 24, dtype=U32), engine=E.vector),
        **V3,
    ),
    Rule(
        "select-scalar",
        "`select_reduce` keeps the running maximum",
        ISA % "select_reduce",
        "reduce_op=nl.add; allowed: max, maximum",
        lambda b: select(
            op=nl.add if b else nl.maximum, res=sb(8, 1), reduce_cmd=nisa.reduce_cmd.reset_reduce
        ),
    ),
    Rule(
        "select-column",
        "`reduce_res` of `select_reduce` is one element per partition",
        ISA % "select_reduce",
        "reduce_res has shape (8, 2); allowed: (8, 1), one element per partition",
        lambda b: select(res=sb(8, 2 if b else 1), reduce_cmd=nisa.reduce_cmd.reset_reduce),
    ),
    Rule(
        "range-v3",
        "`range_select` needs NeuronCore-v3",
        "release-notes/components/nki.rst (2.23)",
        "nisa.range_select needs NeuronCore-v3 or later",
        lambda b: ranges(),
        platform="trn1",
        good_on="trn2",
    ),
    Rule(
        "range-operator",
        "`range_select` compares",
        ISA % "range_select",
        "comp_op0=nl.add; allowed: equal, greater, greater_equal, less, less_equal",
        lambda b: ranges(op=nl.add if b else nl.greater),
    ),
    Rule(
        "range-bounds",
        "Bounds of `range_select` are float32",
        ISA % "range_select",
        "bound0 has dtype bfloat16",
        lambda b: ranges(bound=BF16 if b else F32),
    ),
    Rule(
        "range-columns",
        "A bound of `range_select` is one element per partition",
        ISA % "range_select",
        "bound0 has shape (8, 2); allowed: (8, 1), one element per partition",
        lambda b: ranges(columns=2 if b else 1),
    ),
    Rule(
        "range-fill",
        "`range_select` fills with float32's lowest",
        ISA % "range_select",
        "on_false_value=0.0; allowed: float32's lowest number (-3.4028234663852886e+38)",
        lambda b: ranges(**({"on_false_value": 0.0} if b else {})),
    ),
    Rule(
        "range-reduce",
        "`range_select` keeps the maximum",
        ISA % "range_select",
        "reduce_op=nl.add; allowed: max, maximum",
        lambda b: ranges(reduce_op=nl.add if b else nl.maximum),
    ),
]
