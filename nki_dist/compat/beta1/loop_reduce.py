"""`nl.loop_reduce`: a sum (or another reduction) over iterations of unrolled loops.

The partial result is a float32 tile, one for each iteration of the loops that aren't reduced over;
it is converted when it is used. Reading it before the last iteration gives the partial result.

Follows: `nki.language.loop_reduce` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from nki_dist.compat.beta1 import lower
from nki_dist.compat.beta1.functions import operator_name
from nki_dist.compat.beta1.regions import no_mask
from nki_dist.compat.beta1.state import LoopIndex, place_of, state
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import float32
from nki_dist.errors import NkiValidationError
from nki_dist.isa.spec import current_tracer
from nki_dist.language import emit


def loop_reduce(x, op, loop_indices, *, dtype=None, mask=None, **hints):
    """`x` reduced over the iterations of the loops of `loop_indices`.

    Args:
        x: tile of this iteration.
        op: operator, such as np.add.
        loop_indices: loop variables of nl.affine_range, as the loop gave them.
        dtype: of the result, that of `x` by default.
    """
    no_mask("nl.loop_reduce", mask, x.shape)
    indices = list(loop_indices) if isinstance(loop_indices, (list, tuple)) else [loop_indices]
    for index in indices:
        if not isinstance(index, LoopIndex):
            message = f"loop_indices has {index!r}; allowed: variables of nl.affine_range loops"
            raise NkiValidationError(message, code="index-kind")
    name = operator_name(op)
    loops = {index.loop for index in indices}
    key = (current_tracer().locate(), place_of(loops))
    # In whatever order loops are given: an inner one is made anew in each round of an outer one.
    partial = min(loops, key=state().loops.index).partial
    total = partial.get(key)
    if total is None or all(index.is_first() for index in indices):
        total = partial[key] = Tile(emit.copy(x.resolve(), float32 if x.dtype.is_float else None))
        state().preloaded.add(total.access.storage)  # must stay where it is
    else:
        lower.in_place(name, total, x)
    final = x.dtype if dtype is None else dtype
    if all(index.is_last() for index in indices):
        return Tile(emit.converted(total.access, final))
    return Tile(total.access)
