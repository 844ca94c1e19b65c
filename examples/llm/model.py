"""A model on the ranks of a world: its weights and cache in HBM, and what it launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import weights
from config import Config, UsageError
from device.ends import embedding, next_token
from device.layer import layer_of_prompt, layer_of_token
from device.with_library import library_layers_of_token
from library import PARTS, Library
from weights import Layout

import nki_dist as nki
import nki_dist.collectives as ncc

AT_A_TIME = 4  # layers of a token in a launch, where a kernel has several


@dataclass
class Step:
    """What a prompt or a token has left in HBM: the next token, its logits, where it stands."""

    token: Any
    logits: Any
    position: Any


class Model:
    """A model whose weights are in the HBM of a world's ranks.

    Args:
        world: may be dry; then nothing of the checkpoint but its configuration is needed.
        config, layout: what is shared by whom.
        source: a Checkpoint, or None in a dry world.
        dtype: of weights and activations, NumPy's.
        context: places of the cache.
        library: kernels that take the place of ours where they can.
        loaded: is called with the bytes that have gone into a rank's HBM, and with all of them.

    Raises:
        UsageError: the ranks can't share the model, or a tensor is missing.
        OutOfMemoryError: it doesn't fit into HBM.
    """

    def __init__(
        self,
        world: nki.World,
        config: Config,
        layout: Layout,
        source: Any,
        dtype: Any,
        context: int,
        loaded: Callable[[int, int], None] = lambda done, all_: None,
        library: Library | None = None,
    ) -> None:
        layout.check(config)
        self.world, self.config, self.layout = world, config, layout
        self.dtype, self._source, self._loaded = np.dtype(dtype), source, loaded
        unit = 128 * layout.cores
        self.context = -(-context // unit) * unit
        heads, kv_heads = layout.heads(config)
        self.shape = {"heads": heads, "kv_heads": kv_heads, "library": {}}
        self.shape.update(head_dim=config.head_dim, eps=config.eps)
        self.shape.update(
            experts=config.experts, chosen=config.chosen, renormalise=config.renormalise
        )
        self._replicas = np.arange(world.ranks).reshape(layout.replicas, -1).tolist()
        self.group = ncc.ReplicaGroup(self._replicas) if layout.ranks > 1 else None
        self.launches, self.bytes = 0, 0
        self._library, self._fitting = library, {}
        self.library_kernels: set[str] = set()
        self._fill(heads, kv_heads)

    def _fill(self, heads: int, kv_heads: int) -> None:
        c, layout = self.config, self.layout
        ends = list(weights.of_ends(self._source, c, layout))
        layers = [list(weights.of_layer(self._source, c, layout, n)) for n in range(c.layers)]
        d, n = c.head_dim, self.context
        tables = dict(zip(("cos", "sin"), c.angles(n)), rotation=c.rotation())
        places = {"keys": (kv_heads, d, n), "values": (kv_heads, n, d)}
        size = self.dtype.itemsize
        self._all = sum(int(np.prod(w.shape)) * size for of in [ends, *layers] for w in of)
        self._all += c.layers * 2 * kv_heads * d * n * size
        self.ends = {w.name: self._weight("", w) for w in ends}
        self.tables = {name: self._put(name, t.shape, t) for name, t in tables.items()}
        none = {"q_norm": None, "k_norm": None} if c.kind == "llama" else {}
        self.layers: list[dict[str, Any]] = []
        self.caches: list[dict[str, Any]] = []
        for number, of in enumerate(layers):
            at = f"layers.{number}."
            self.layers.append({w.name: self._weight(at, w) for w in of} | none)
            zeros = {name: np.zeros(shape, self.dtype) for name, shape in places.items()}
            self.caches.append(
                {k: self._put(f"{at}cache.{k}", z.shape, z) for k, z in zeros.items()}
            )

    def _weight(self, at: str, weight: weights.Weight) -> Any:
        ranks, dtype = self.layout.ranks, np.dtype(weight.dtype or self.dtype)

        def of_ranks() -> Any:
            found = [weight.of_rank(rank).astype(dtype, copy=False) for rank in range(ranks)]
            return nki.per_rank([found[rank % ranks] for rank in range(self.world.ranks)])

        return self._put(at + weight.name, weight.shape, None, of_ranks, dtype)

    def _put(self, name: str, shape: Any, value: Any, source: Any = None, dtype: Any = None) -> Any:
        dtype = value.dtype if source is None else dtype
        if self.world.dry:
            made = self.world.put(nki.TensorSpec(shape, dtype), name=name)
        elif source is None:
            made = self.world.put(value, name=name)
        else:
            made = self.world.put(source(), name=name, restore=source)
        self.bytes += made.nbytes
        self._loaded(self.bytes, self._all)
        return made

    # ---- launches --------------------------------------------------------------------------------

    def _run(self, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        self.launches += 1
        return self.world.run(kernel, *args, group=self.group, **kwargs)

    def prompt(self, prompts: Sequence[Sequence[int]]) -> Step:
        """Go through a prompt for each replica, all of one length.

        Raises:
            UsageError: a prompt is empty, not as long as the others, or has an unknown token.
        """
        count, ranks = len(prompts[0]), self.layout.ranks
        check_prompts(self.config, prompts)
        shared = ranks if self.layout.sequence else 1
        padded = -(-count // shared) * shared
        ids = np.zeros((len(prompts), padded, 1), np.int32)
        ids[:, :count, 0] = prompts
        of_rank = nki.per_rank([ids[rank // ranks] for rank in range(self.world.ranks)])
        x = self._run(embedding, of_rank, self.ends["table"], self.ends["first"], ranks=shared)
        x = self._layers(layer_of_prompt, x, self.tables, sequence_ranks=shared)
        return self._choose(x, np.array([[count - 1]], np.int32), count - 1, shared)

    def token(self, before: Step, place: int) -> Step:
        """Go on by a token.

        Args:
            before: what the token before has left.
            place: of the token in the text, from 0.
        """
        tables = self.tables
        x, angles = self._run(
            embedding,
            before.token,
            self.ends["table"],
            self.ends["first"],
            before.position,
            tables["cos"],
            tables["sin"],
        )
        step = {"position": before.position, "angles": angles, "rotation": tables["rotation"]}
        span = self._span(place + 1)
        shape = None
        for n in range(0, len(self.layers), AT_A_TIME):
            of = slice(n, n + AT_A_TIME)
            args = (x, tuple(self.layers[of]), tuple(self.caches[of]), step)
            if shape is None:
                shape = self._fitted(
                    library_layers_of_token, args, self.shape, [("transformer_tkg",)], span=span
                )
            if "transformer_tkg" not in shape["library"]:
                x = self._layers(layer_of_token, x, step, span=span)
                break
            x = self._run(library_layers_of_token, *args, shape, span=span)
        return self._choose(x, before.position, 0, 1)

    def _layers(self, kernel: Any, x: Any, tables: Any, **more: Any) -> Any:
        """All layers, a launch each."""
        shape = None
        for w, cache in zip(self.layers, self.caches):
            args = (x, w, cache["keys"], cache["values"], tables)
            if shape is None:
                shape = self._fitted(kernel, args, self.shape, **more)
            x = self._run(kernel, *args, shape, **more)
        return x

    def _fitted(self, kernel: Any, args: Any, shape: Any, *groups: Any, **more: Any) -> Any:
        """The shape for a launch, with kernels of the library that take its sizes."""
        if self._library is None:
            return shape
        key = (kernel, *args[0].shape, *more.items())
        if key not in self._fitting:

            def compiles(parts: dict[str, Any]) -> Any:
                given = {**shape, "library": parts}
                return self.world.compile(kernel, *args, given, group=self.group, **more)

            self._fitting[key] = self._library.fitting(compiles, *groups)
        parts = self._fitting[key]
        self.library_kernels.update(PARTS.keys() & parts)
        return {**shape, "library": parts}

    def logits(self, step: Step) -> np.ndarray:
        """The logits of the next token of each replica: (replicas, vocabulary), float32."""
        found = np.concatenate(step.logits.numpy(), axis=1)
        return found.reshape(self.layout.replicas, -1)[:, : self.config.vocabulary]

    def tokens(self, step: Step) -> list[int]:
        """The next token of each replica."""
        return [int(t[0, 0]) for t in step.token.numpy()[:: self.layout.ranks]]

    def _choose(self, x: Any, position: Any, last: int, shared: int) -> Step:
        c, ends = self.config, self.ends
        shape = {"eps": c.eps, "vocabulary": c.vocabulary, "last": last, "library": {}}
        args = (x, ends["norm"], ends["head"], ends["first"], position)
        more = {"ranks": self.layout.ranks, "gathers": shared > 1}
        shape = self._fitted(next_token, args, shape, **more)
        found = self._run(next_token, *args, shape, **more)
        return Step(*found)

    def _span(self, places: int) -> int:
        """Places of the cache that a token looks at: a power of two, so that kernels are few."""
        span = 128 * self.layout.cores
        while span < places:
            span *= 2
        return min(span, self.context)


def check_prompts(c: Config, prompts: Sequence[Sequence[int]]) -> None:
    """Refuse prompts that a model doesn't take.

    Raises:
        UsageError: one is empty, not as long as the others, or has an unknown token.
    """
    lengths = {len(p) for p in prompts}
    if len(lengths) > 1 or 0 in lengths:
        raise UsageError(f"prompts of {sorted(lengths)} tokens; all are to have as many, not 0")
    wrong = [t for p in prompts for t in p if not 0 <= t < c.vocabulary]
    if wrong:
        raise UsageError(f"token {wrong[0]}; the model has 0 to {c.vocabulary - 1}")
