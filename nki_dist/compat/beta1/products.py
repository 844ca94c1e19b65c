"""Lets matmuls add to PSUM themselves, and write where their result is copied.

`r = nisa.nc_matmul(x, y)` followed by `acc += r`, `acc[...] = acc + r` or `acc[...] = r` is traced
as it is written: a product, a copy of it or of `acc` to SBUF (Vector reads one operand only from
PSUM), a sum. AWS's compiler lets the matmul accumulate in `acc`, and so does this: PSUM adds in
float32, one product at a time, as the Vector engine did, so the bits are the same.

It is done where nobody can tell: the product has no other reader, all three are float32 in the same
order of elements, nobody touches `acc` in between (or nobody overwrites the matmul's operands), and
`acc` holds zeros, earlier products or, where `+=` starts it, nothing. To anything else a matmul
can't add before NeuronCore-v4.

Follows: `nki.isa.nc_matmul` and "NKI Programming Model" of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from nki_dist.arch import Arch
from nki_dist.compat.beta1.recorded import (
    OTHER,
    PRODUCT,
    UNSET,
    Contents,
    Recorded,
    apart,
    in_order,
)
from nki_dist.dtypes import float32
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, psum


class Sum(NamedTuple):
    """Instructions that a matmul can do without: positions, and what becomes of its result."""

    product: int
    copy: int | None
    total: int
    dst: Access
    adds: bool


def fold(recorded: Recorded, started: Collection[int], arch: Arch) -> bool:
    """Let matmuls accumulate and write where their results go; whether any does.

    Args:
        started: ids of instructions of `+=`, which may start from nothing.
    """
    sums = [at for at in range(len(recorded)) if _destination(recorded, at) is not None]
    if not sums:
        return False
    followed: dict[Any, Contents] = {}
    for at in sums:
        storage = recorded.items[at].args["dst"].storage  # type: ignore[union-attr]
        followed[storage] = Contents(storage)
    changed, candidates = False, set(sums)
    for at in sorted({use for s in followed for use in recorded.uses[s]}):
        i = recorded.items[at]
        if i is None:
            continue
        if at in candidates:
            found = _sum(recorded, at)
            allowed = found is not None and _allowed(found, followed, id(i) in started)
            if found is not None and allowed and _merge(recorded, found, arch):
                followed[found.dst.storage].put(found.dst, PRODUCT)
                changed = True
                continue
        for storage in {a.storage for a in INSTRUCTIONS[i.opcode].writes(i)} & followed.keys():
            followed[storage].follow(i)
    return changed


def _destination(recorded: Recorded, at: int) -> Access | None:
    """The accumulator that an instruction adds to or copies to."""
    i = recorded.items[at]
    if i is None or i.opcode not in ("tensor_tensor", "tensor_copy"):
        return None
    dst: Access = i.args["dst"]
    fits = dst.region is psum and dst.dtype is float32 and dst.dynamic is None
    if not fits or not recorded.is_local(dst.storage):
        return None
    return dst if i.opcode == "tensor_copy" or i.args["op"] == "add" else None


def _sum(recorded: Recorded, at: int) -> Sum | None:
    """The chain that ends in an instruction, from the matmul on."""
    i = recorded.items[at]
    assert i is not None
    dst: Access = i.args["dst"]
    if i.opcode == "tensor_copy":
        product = _maker(recorded, i.args["src"], at, "nc_matmul")
        return None if product is None else Sum(product, None, at, dst, False)
    operands = i.args["data1"], i.args["data2"]
    for one, other in (operands, operands[::-1]):
        copy = _maker(recorded, other, at, "tensor_copy")
        if copy is None:
            continue
        source: Access = recorded.items[copy].args["src"]  # type: ignore[union-attr]
        if one.same_elements(dst):
            product = _maker(recorded, source, copy, "nc_matmul")
        elif source.same_elements(dst):  # the accumulator was copied, not the product
            product = _maker(recorded, one, at, "nc_matmul")
        else:
            product = None
        return None if product is None else Sum(product, copy, at, dst, True)
    return None


def _maker(recorded: Recorded, view: Access, reader: int, opcode: str) -> int | None:
    """Where the instruction is that made a view, if it did nothing else and has one reader."""
    uses = recorded.uses[view.storage]
    if len(uses) != 2 or uses[1] != reader or not recorded.is_local(view.storage):
        return None
    i = recorded.items[uses[0]]
    assert i is not None
    if i.opcode != opcode or view.dynamic is not None:
        return None
    written: Access = i.args["dst"]
    equal = in_order(written) == in_order(view) and written.dtype is float32
    if opcode == "nc_matmul":
        equal = equal and i.args["accumulate"] is not True and not i.args["is_transpose"]
    return uses[0] if equal and written.dynamic is None else None


def _allowed(found: Sum, followed: dict[Any, Contents], starts: bool) -> bool:
    """Whether a matmul finds in its destination what it can add to."""
    if not found.adds:
        return True
    least, most = followed[found.dst.storage].within(found.dst)
    return most < OTHER and (starts or least > UNSET)


def _merge(recorded: Recorded, found: Sum, arch: Arch) -> bool:
    """Put the matmul in the place of the chain: where it is, or else where the chain ends."""
    items = recorded.items
    product, total = items[found.product], items[found.total]
    copy = None if found.copy is None else items[found.copy]
    assert product is not None and total is not None
    chain = [i for i in (product, copy, total) if i is not None]
    if len({i.order_group for i in chain}) > 1:
        return False
    first = found.product if found.copy is None else min(found.product, found.copy)
    between = recorded.between(found.dst.storage, first, found.total)
    early = all(i in chain or _leaves(i, found.dst, "rw") for i in between)
    moved = copy is not None and copy.args["src"].storage is found.dst.storage
    if not early and (moved or not _operands_last(recorded, product, found)):
        return False
    args = dict(product.args)
    args["dst"] = found.dst
    args["accumulate"] = None if found.adds else False
    try:
        args["dst"] = INSTRUCTIONS[product.opcode].roles["dst"].accept("dst", found.dst)
        INSTRUCTIONS[product.opcode].verify(product.with_args(args), arch)
    except NkiError:  # sizes or partitions that a matmul can't write: Vector goes on doing it
        return False
    for at in (found.product, found.copy, found.total):
        if at is not None:
            recorded.remove(at)
    product.change(args)
    recorded.put(found.product if early else found.total, product)
    return True


def _operands_last(recorded: Recorded, product: Instruction, found: Sum) -> bool:
    """Whether a matmul would read the same where its result is added."""
    return all(
        _leaves(i, a, "w")
        for a in INSTRUCTIONS[product.opcode].reads(product)
        for i in recorded.between(a.storage, found.product, found.total)
    )


def _leaves(i: Instruction, view: Access, modes: str) -> bool:
    """Whether an instruction surely neither reads (r) nor writes (w) elements of a view."""
    spec = INSTRUCTIONS[i.opcode]
    touched = [*spec.writes(i), *(spec.reads(i) if "r" in modes else ())]
    return all(apart(a, view) for a in touched)
