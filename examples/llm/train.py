"""Training steps of a small Llama on simulated NeuronCores: forward, backward, AdamW.

    python examples/llm/train.py --ranks 4 --data-parallel 2 --steps 3 --check

Ranks share the weights of a layer (tensor parallelism) or the texts (data parallelism). --check
compares loss, gradients and weights with PyTorch's; --dry says how long a step takes, of any shape.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import shapes
from config import Config, UsageError
from device import training
from device.ends import embedding
from weights import Layout, of_layer, part

import nki_dist as nki
import nki_dist.collectives as ncc

SHAPE = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "rms_norm_eps": 1e-5,
}
OPTIONS = (1e-3, 0.01, 0.9, 0.999, 1e-5)  # learning rate, decay, betas, epsilon


class Tensors:
    """Tensors by Hugging Face's names, read as a checkpoint is."""

    def __init__(self, by_name: dict[str, np.ndarray]) -> None:
        self.by_name = by_name

    def read(
        self, name: str, rows: slice = slice(None), columns: slice = slice(None)
    ) -> np.ndarray:
        found = self.by_name[name]
        return found[rows, columns] if found.ndim == 2 else found[rows]


def random_tensors(c: Config, seed: int = 0) -> Tensors:
    rng, made = np.random.default_rng(seed), {}
    for tensors in shapes.tensors_of(c):
        for name, size in tensors.items():
            value = rng.standard_normal(size, np.float32) * np.float32(0.05)
            made[name] = value if len(size) > 1 else 1 + value
    return Tensors(made)


def of_rank(source: Any, c: Config, layout: Layout) -> list[dict[str, tuple[Any, Callable]]]:
    """Shapes and contents of a rank's weights: of each layer, then of the ends."""
    ranks, hidden = layout.ranks, c.hidden
    columns = c.vocabulary // ranks
    found = [
        {w.name: (w.shape, w.of_rank) for w in of_layer(source, c, layout, n)}
        for n in range(c.layers)
    ]

    def rows(name: str) -> Callable[[int], np.ndarray]:
        return lambda rank: source.read(name, part(c.vocabulary, ranks, rank))

    head = rows("lm_head.weight")
    found.append(
        {
            "table": ((columns, hidden), rows("model.embed_tokens.weight")),
            "norm": ((hidden,), lambda rank: source.read("model.norm.weight")),
            "head": ((hidden, columns), lambda rank: np.ascontiguousarray(head(rank).T)),
        }
    )
    return found


class Trainer:
    """Weights, moments and steps on the ranks of a world.

    Raises:
        UsageError: the ranks can't share the model.
    """

    def __init__(self, world: nki.World, c: Config, layout: Layout, source: Any, tokens: int):
        layout.check(c)
        for what, count in (
            ("heads of keys", c.kv_heads),
            ("tokens of the vocabulary", c.vocabulary),
        ):
            if count % layout.ranks:
                raise UsageError(f"{count} {what} can't be shared by {layout.ranks} ranks evenly")
        self.world, self.config, self.layout, self.number = world, c, layout, 0
        heads, kv_heads = layout.heads(c)
        self.shape = {"heads": heads, "kv_heads": kv_heads, "head_dim": c.head_dim, "eps": c.eps}
        self.shape["tokens"] = tokens * layout.replicas
        grid = np.arange(world.ranks).reshape(layout.replicas, -1)
        self.group = ncc.ReplicaGroup(grid.tolist()) if layout.ranks > 1 else None
        self.replicas = ncc.ReplicaGroup(grid.T.tolist()) if layout.replicas > 1 else None
        self.weights, self.moments = [], []
        for weights in of_rank(source, c, layout):
            self.weights.append({k: self._put(*w) for k, w in weights.items()})
            self.moments.append({k: self._zeros((2, *w[0])) for k, w in weights.items()})
        columns = c.vocabulary // layout.ranks
        self.first = self._put(
            (1, 1), lambda rank: np.array([[rank * columns]], np.int32), np.int32
        )
        cos, sin = c.angles(tokens)
        self.tables = {
            "cos": self._put(cos.shape, lambda rank: cos),
            "sin": self._put(sin.shape, lambda rank: sin),
            "rotation": self._put((c.head_dim,) * 2, lambda rank: c.rotation()),
        }

    def _put(self, shape: Any, of: Callable, dtype: Any = np.float32) -> Any:
        if self.world.dry:
            return self.world.put(nki.TensorSpec(shape, np.dtype(dtype)))
        ranks = self.layout.ranks
        found = [of(rank) for rank in range(ranks)]
        return self.world.put(nki.per_rank([found[r % ranks] for r in range(self.world.ranks)]))

    def _zeros(self, shape: Any) -> Any:
        return self._put(shape, lambda rank: np.zeros(shape, np.float32))

    def gradients(self, texts: np.ndarray) -> tuple[Any, list[dict[str, Any]]]:
        """The loss of each token, and the gradients of the weights, in HBM.

        Args:
            texts: (replicas, tokens + 1), int32.
        """
        run, shape, group, tables = self.world.run, self.shape, self.group, self.tables
        layers, ends = self.weights[:-1], self.weights[-1]
        each = range(self.world.ranks)
        of = [texts[rank // self.layout.ranks][:, None] for rank in each]
        ids, targets = (nki.per_rank([t[a:b] for t in of]) for a, b in ((0, -1), (1, None)))
        x = run(embedding, ids, ends["table"], self.first, group=group)
        kept = []
        for w in layers:
            before = x
            x, *of_attention = run(training.attention_forward, x, w, tables, shape, group)
            between = x
            x, *of_mlp = run(training.mlp_forward, x, w, shape, group)
            kept.append((before, tuple(of_attention), between, tuple(of_mlp)))
        losses, dx, last = run(
            training.loss_and_gradient, x, targets, self.first, ends, shape, group
        )
        found = []
        for w, (before, of_attention, between, of_mlp) in zip(layers[::-1], kept[::-1]):
            dx, more = run(training.mlp_backward, between, dx, w, of_mlp, shape, group)
            dx, rest = run(
                training.attention_backward, before, dx, w, of_attention, tables, shape, group
            )
            found.insert(0, {**rest, **more})
        rows = ends["table"].shape[0]
        last["table"] = run(training.embedding_backward, ids, self.first, dx, rows)
        return losses, [*found, last]

    def step(self, texts: np.ndarray) -> tuple[float, list[dict[str, Any]]]:
        """A training step: the loss before it, and the gradients of each rank's own texts."""
        losses, gradients = self.gradients(texts)
        self.number += 1
        of_step = [[1 / (1 - beta**self.number) for beta in OPTIONS[2:4]]]
        factors = np.array(of_step, np.float32)
        for weights, of, moments in zip(self.weights, gradients, self.moments):
            for k, w in weights.items():
                self.world.run(
                    training.optimise, w, of[k], moments[k], factors, OPTIONS, self.replicas
                )
        if self.world.dry:
            return float("nan"), gradients
        each = losses.numpy()[:: self.layout.ranks]
        return float(np.mean(each)), gradients


def compare(trainer: Trainer, torch_model: Any, of: list[dict[str, Any]], what: str) -> float:
    """How far tensors are from PyTorch's, as a share of the largest element of each.

    Args:
        of: a rank's tensors by name; gradients are added up over replicas.
        what: "grad" or "data" of PyTorch's parameters.
    """
    named = torch_model.named_parameters()
    source = Tensors({name: getattr(p, what).detach().numpy() for name, p in named})
    ranks, worst = trainer.layout.ranks, 0.0
    for found, want in zip(of, of_rank(source, trainer.config, trainer.layout)):
        for name, (_, of_one) in want.items():
            values = np.stack(found[name].numpy()).reshape(trainer.layout.replicas, ranks, -1)
            values = values.sum(0) if what == "grad" else values[0]
            for rank in range(ranks):
                wanted = of_one(rank).reshape(-1)
                worst = max(worst, np.abs(values[rank] - wanted).max() / np.abs(wanted).max())
    return worst


def torch_twin(c: Config, source: Tensors) -> tuple[Any, Any]:
    """PyTorch's model with the same weights, and its optimiser."""
    try:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        raise UsageError("--check needs torch and transformers") from None
    options = dict(SHAPE, num_hidden_layers=c.layers, rope_theta=c.rope["rope_theta"])
    model = LlamaForCausalLM(LlamaConfig(**options))
    model.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in source.by_name.items()})
    rate, decay, beta1, beta2, eps = OPTIONS
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=rate, betas=(beta1, beta2), eps=eps, weight_decay=decay
    )
    return model, optimiser


def torch_step(twin: tuple[Any, Any], texts: np.ndarray) -> float:
    import torch

    model, optimiser = twin
    ids = torch.from_numpy(texts.astype(np.int64))
    optimiser.zero_grad()
    logits = model(ids[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    return float(loss.detach())


def train(asked: argparse.Namespace) -> None:
    """Take the steps that were asked for, and print what they gave."""
    shape = SHAPE if asked.shape is None else shapes.known(asked.shape, asked.layers)
    c = Config.of(shape if asked.layers is None else {**shape, "num_hidden_layers": asked.layers})
    if c.kind != "llama" or (asked.check and asked.shape):
        raise UsageError("Llamas only, and --check the small one")
    if not 1 <= asked.tokens <= 512 or asked.steps < 1:
        raise UsageError(f"{asked.tokens} tokens; 1 to 512; and {asked.steps} steps, at least 1")
    layout = Layout.of_world(asked.ranks, asked.lnc, asked.data_parallel)
    source = None if asked.dry else random_tensors(c)
    rng = np.random.default_rng(1)
    with nki.World(asked.ranks, asked.lnc, asked.platform, asked.host, dry=asked.dry) as world:
        trainer = Trainer(world, c, layout, source, asked.tokens)
        twin = torch_twin(c, source) if asked.check else None
        for n in range(asked.steps):
            texts = rng.integers(0, c.vocabulary, (layout.replicas, asked.tokens + 1), np.int32)
            with world.session() as session:
                loss, gradients = trainer.step(texts)
            value = "" if asked.dry else f"loss {loss:.6f}, "
            print(f"step {n}: {value}{session.device_us:,.0f} us simulated", end="")
            if twin is not None:
                want = torch_step(twin, texts)
                far = compare(trainer, twin[0], gradients, "grad")
                twin[1].step()
                after = compare(trainer, twin[0], trainer.weights, "data")
                print(f"; PyTorch {want:.6f}, gradients {far:.1e} off, weights {after:.1e}", end="")
                if not (abs(loss - want) < 1e-4 and far < 1e-4 and after < 1e-4):
                    raise UsageError("that isn't what PyTorch has")
            print()
        if asked.report:
            session.write_report(asked.report)
        if asked.profile:
            print(session)


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--lnc", type=int, default=2, choices=(1, 2))
    p.add_argument("--host", default="inprocess", choices=("inprocess", "ray"))
    p.add_argument("--platform", default="trn2")
    p.add_argument("--data-parallel", type=int, default=1, metavar="D", help="replicas")
    p.add_argument("--steps", type=int, default=1)
    p.add_argument("--tokens", type=int, default=64, help="of a text, at most 512")
    p.add_argument("--check", action="store_true", help="against PyTorch")
    p.add_argument("--dry", action="store_true", help="no values: how long a step takes")
    p.add_argument("--shape", help="of a known model, as in shapes.py")
    p.add_argument("--layers", type=int)
    p.add_argument("--report", metavar="FILE", help="write a page about the last step")
    p.add_argument("--profile", action="store_true", help="print the time of each kernel")
    asked = p.parse_args(arguments)
    try:
        train(asked)
    except (UsageError, nki.errors.NkiError, OSError) as error:
        print(f"train.py: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
