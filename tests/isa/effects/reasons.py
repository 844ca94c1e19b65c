"""What instructions declare for another reason than what one does by itself, with the reason.

Rows that aren't needed are complaints of `verify.py`, too.
"""

from __future__ import annotations

from typing import Final

UNFOLLOWED: Final = {
    "exponential": {("reduce_init", "reduce_res")},  # a start value is a number nearly always
    "nc_matmul_mx": {("stationary_scale", "dst"), ("moving_scale", "dst")},  # go with the values
    "quantize_mx": {("src", "dst_scale"), ("before dst_scale", "dst_scale")},  # go with the values
    "tensor_scalar_cumulative": {("imm1", "dst")},
    "tensor_scalar_reduce": {("reduce_init", "reduce_res")},
}
"""(source, result) whose dependence isn't followed, although that of others is."""

CHOOSES: Final = {
    "affine_select": "elements are chosen by an expression that may have a register in it",
    "local_gather": "elements are chosen by indices",
    "nc_match_replace8": "elements are chosen by values",
    "nc_n_gather": "elements are chosen by indices",
    "nonzero_with_count": "results depend on what is nonzero",
    "range_select": "elements are chosen by bounds",
    "select_reduce": "elements are chosen by a predicate",
    "sequence_bounds": "results depend on which neighbours are equal",
    "tensor_copy_predicated": "elements are chosen by a predicate",
    "topk": "elements are chosen by order",
}
"""Instructions whose results aren't followed at all, because data decides what they depend on."""

ROUNDS: Final = {"activation": "a plain copy is documented as arithmetic: it may round"}
"""Instructions that happen to keep bits, which nobody may rely on."""

LOOKED_UP: Final = {
    "max8": {"dst", "src"},
    "nc_find_index8": {"data", "vals"},
    "nc_match_replace8": {"dst", "data", "vals"},
}
"""Operands whose values one instruction takes out and another finds again (test_looking_up.py)."""

_FUNCTION = "the Scalar engine looks the function up in a table, loaded when it changes (DMAO)"
TABLES: Final = {
    "activate2": ("op", _FUNCTION),
    "activation": ("op", _FUNCTION),
    "activation_reduce": ("op", _FUNCTION),
    "core_barrier": ("", "computes nothing"),
    "language_math": ("", "ours: which of its functions have a table isn't known"),
    "tensor_copy": ("", "copies need no table"),
    "tensor_scalar": ("", "operators of the engines' ALUs, no functions"),
}
"""By instruction of the Scalar engine: the parameter with the function whose table is loaded."""

_PSUM = "results go to PSUM, which the Tensor engine doesn't read: matmuls follow each other (A2)"
CHAINS: Final = {
    "core_barrier": (False, "has no result"),
    "nc_matmul": (True, _PSUM),
    "nc_matmul_mx": (True, _PSUM),
    "nc_transpose": (True, _PSUM),
}
"""By instruction of the Tensor engine: dependants there don't wait for its result."""
