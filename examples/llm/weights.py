"""Which part of each weight a rank has, in the form that the kernels take.

Products whose outputs are shared (q, k, v, gate, up, head) are split by columns, those that
contract what is shared (out, down) by rows; ranks without a head of keys of their own repeat one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from config import Config, UsageError

READ = "model.layers.{}."


class Weight(NamedTuple):
    """A tensor of a rank: its shape, and what gives its contents, float or integer."""

    name: str
    shape: tuple[int, ...]
    of_rank: Callable[[int], np.ndarray]
    dtype: Any = None  # that of the model, or this


@dataclass(frozen=True)
class Layout:
    """How the ranks share a model.

    Attributes:
        ranks: that share the weights: all, or those of a replica.
        cores: of a rank.
        replicas: with data parallelism.
        experts_apart: ranks have whole experts.
        sequence: ranks share the tokens of a prompt between products.
    """

    ranks: int
    cores: int
    replicas: int = 1
    experts_apart: bool = False
    sequence: bool = False

    @classmethod
    def of_world(cls, ranks: int, cores: int, replicas: int, *more: bool) -> Layout:
        """Of a world's ranks, which the replicas share.

        Raises:
            UsageError: they can't.
        """
        if ranks < 1 or replicas < 1 or ranks % replicas:
            raise UsageError(f"{replicas} replicas don't divide {ranks} ranks; at least 1 of both")
        return cls(ranks // replicas, cores, replicas, *more)

    def check(self, c: Config) -> None:
        """Refuse what can't be shared.

        Raises:
            UsageError: it can't.
        """
        r = self.ranks
        if c.heads % r:
            raise UsageError(f"{c.heads} heads can't be shared by {r} ranks evenly")
        if c.kv_heads % r and r % c.kv_heads:
            raise UsageError(
                f"{c.kv_heads} heads of keys and values can't be shared by {r} ranks evenly, nor "
                "repeated on them"
            )
        if (c.experts and not 8 <= c.experts <= 512) or c.chosen > 8:
            raise UsageError(f"{c.chosen} of {c.experts} experts; at most 8 of 8 to 512")
        if self.experts_apart and not c.experts:
            raise UsageError("--expert-parallel: the model has no experts")
        if self.experts_apart and c.experts % r:
            raise UsageError(f"{c.experts} experts can't be shared by {r} ranks evenly")
        if not self.experts_apart and c.inner % r:
            raise UsageError(f"{c.inner} columns of the MLP can't be shared by {r} ranks evenly")
        if c.head_dim > 128 or c.head_dim % 2:
            raise UsageError(f"heads of {c.head_dim}; at most 128, and even")

    def heads(self, c: Config) -> tuple[int, int]:
        """Heads of queries and of keys on a rank."""
        return c.heads // self.ranks, max(1, c.kv_heads // self.ranks)

    def columns(self, c: Config) -> int:
        """Tokens of the vocabulary on a rank, whole tiles for each of its cores."""
        unit = 128 * self.cores
        return -(-c.vocabulary // (unit * self.ranks)) * unit


def part(count: int, ranks: int, rank: int) -> slice:
    """A rank's share of `count`, which they share evenly."""
    return slice(count // ranks * rank, count // ranks * (rank + 1))


def of_layer(source: Any, c: Config, share: Layout, layer: int) -> Iterator[Weight]:
    """The weights of a layer."""
    ranks, d, hidden = share.ranks, c.head_dim, c.hidden
    heads, kv = share.heads(c)
    at = READ.format(layer)

    def turned(name: str, rows: slice) -> np.ndarray:
        return np.ascontiguousarray(source.read(f"{at}{name}.weight", rows).T)

    def whole(name: str) -> Callable[[int], np.ndarray]:
        return lambda rank: source.read(f"{at}{name}.weight")

    def qkv(rank: int) -> np.ndarray:
        q = part(c.heads * d, ranks, rank)
        first = rank * c.kv_heads // ranks * d
        k = slice(first, first + kv * d)
        rows = {"q_proj": q, "k_proj": k, "v_proj": k}
        return np.concatenate([turned(f"self_attn.{n}", r) for n, r in rows.items()], axis=1)

    def contracted(name: str, count: int) -> Callable[[int], np.ndarray]:
        def of_rank(rank: int) -> np.ndarray:
            columns = part(count, ranks, rank)
            found = source.read(f"{at}{name}.weight", slice(None), columns)
            return np.ascontiguousarray(found.T)

        return of_rank

    yield Weight("norm1", (hidden,), whole("input_layernorm"))
    yield Weight("norm2", (hidden,), whole("post_attention_layernorm"))
    if c.kind != "llama":
        yield Weight("q_norm", (d,), whole("self_attn.q_norm"))
        yield Weight("k_norm", (d,), whole("self_attn.k_norm"))
    yield Weight("qkv", (hidden, (heads + 2 * kv) * d), qkv)
    yield Weight("out", (heads * d, hidden), contracted("self_attn.o_proj", c.heads * d))
    if c.experts:
        yield from _experts(source, c, share, at)
        return
    inner = c.inner // ranks
    for name in ("gate", "up"):
        yield Weight(
            name,
            (hidden, inner),
            lambda rank, name=name: turned(f"mlp.{name}_proj", part(c.inner, ranks, rank)),
        )
    yield Weight("down", (inner, hidden), contracted("mlp.down_proj", c.inner))


def _experts(source: Any, c: Config, share: Layout, at: str) -> Iterator[Weight]:
    """Router and experts: a part of each on every rank, or whole ones.

    With whole ones, the router's columns begin with the rank's own experts, so that a kernel knows
    which those are.
    """
    ranks, hidden = share.ranks, c.hidden
    apart = share.experts_apart
    count, inner = (c.experts // ranks, c.inner) if apart else (c.experts, c.inner // ranks)

    def router(rank: int) -> np.ndarray:
        found = np.ascontiguousarray(source.read(f"{at}mlp.gate.weight").T)
        return np.roll(found, -count * rank, axis=1) if apart else found

    def of(name: str) -> Callable[[int], np.ndarray]:
        def of_rank(rank: int) -> np.ndarray:
            own = part(c.experts, ranks, rank) if apart else slice(0, c.experts)
            inside = slice(None) if apart else part(c.inner, ranks, rank)
            found = []
            for e in range(c.experts)[own]:
                which = (slice(None), inside) if name == "down" else (inside, slice(None))
                found.append(source.read(f"{at}mlp.experts.{e}.{name}_proj.weight", *which).T)
            return np.stack(found)

        return of_rank

    yield Weight("router", (hidden, c.experts), router)
    if apart and share.sequence:
        yield Weight("dispatch", (hidden, c.experts), lambda rank: router(0))
    for name in ("gate", "up"):
        yield Weight(name, (count, hidden, inner), of(name))
    yield Weight("down", (count, inner, hidden), of("down"))


def of_ends(source: Any, c: Config, share: Layout) -> Iterator[Weight]:
    """Embedding, last norm and head: a stretch of the vocabulary on each rank."""
    columns, hidden = share.columns(c), c.hidden

    def rows(name: str, rank: int) -> np.ndarray:
        first, last = columns * rank, min(columns * (rank + 1), c.vocabulary)
        found = source.read(name, slice(min(first, last - 1), last))[: max(0, last - first)]
        if len(found) == columns:
            return found
        return np.pad(found, ((0, columns - len(found)), (0, 0)))

    def head(rank: int) -> np.ndarray:
        name = "model.embed_tokens.weight" if c.tied else "lm_head.weight"
        halves = rows(name, rank).reshape(share.cores, 128, -1, hidden)
        return np.ascontiguousarray(halves.transpose(3, 0, 2, 1)).reshape(hidden, columns)

    yield Weight("table", (columns, hidden), lambda rank: rows("model.embed_tokens.weight", rank))
    yield Weight("norm", (hidden,), lambda rank: source.read("model.norm.weight"))
    yield Weight("head", (hidden, columns), head)
    yield Weight("first", (1, 1), lambda rank: np.array([[columns * rank]], np.int32), np.int32)
