"""`NkiTensor.rearrange`: split, reorder and merge named dimensions.

Works on any object with `shape`, `reshape_dim`, `permute` and `flatten_dims`, so the rules of those
(partition dimension, contiguity) hold here too.
"""

from __future__ import annotations

from math import prod
from typing import Any

from nki_dist.errors import invalid


def _groups(pattern: tuple) -> list[tuple[str, ...]]:
    return [(p,) if isinstance(p, str) else tuple(p) for p in pattern]


def _sizes(group: tuple[str, ...], total: int, sizes: dict[str, int]) -> list[int]:
    missing = [name for name in group if name not in sizes]
    if len(missing) > 1:
        message = f"sizes of {missing} are unknown; give all but one of a group"
        raise invalid(message, code="rearrange")
    rest = prod(sizes[name] for name in group if name in sizes)
    if missing:
        if rest == 0 or total % rest:
            message = f"{total} elements can't be split over {group} with {sizes}"
            raise invalid(message, code="rearrange", got=total)
        sizes[missing[0]] = total // rest
    elif rest != total:
        message = f"{group} has {rest} elements, the dimension {total}"
        raise invalid(message, code="rearrange", got=rest, allowed=total)
    return [sizes[name] for name in group]


def rearrange(tensor: Any, src: tuple, dst: tuple, fixed: dict[str, int]) -> Any:
    source, target = _groups(src), _groups(dst)
    names = [name for group in source for name in group]
    target_names = [name for group in target for name in group]
    if sorted(names) != sorted(target_names) or len(set(names)) != len(names):
        message = f"patterns {src} and {dst} don't name the same dimensions once"
        raise invalid(message, code="rearrange")
    if len(source) != len(tensor.shape):
        message = f"{src} names {len(source)} dimensions of shape {tensor.shape}"
        raise invalid(message, code="rearrange", got=len(source), allowed=len(tensor.shape))
    sizes = dict(fixed)
    for dim in range(len(source) - 1, -1, -1):
        if len(source[dim]) != 1:
            tensor = tensor.reshape_dim(dim, tuple(_sizes(source[dim], tensor.shape[dim], sizes)))
        else:
            _sizes(source[dim], tensor.shape[dim], sizes)
    tensor = tensor.permute(tuple(names.index(name) for name in target_names))
    for at, group in enumerate(target):
        if len(group) > 1:
            tensor = tensor.flatten_dims(at, at + len(group) - 1)
    return tensor
