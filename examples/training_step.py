"""A training step of a decoder's layers on 256 to 16,384 simulated ranks: its time, by part.

    python examples/training_step.py 256 1024 4096 16384

The model is spread in three ways, as its sizes below say:

- tensor parallel over the 64 ranks of an instance: a head, and a share of the MLP, on each;
- pipeline parallel over the 4 instances of an UltraServer: a stage of layers on each;
- data parallel over UltraServers, which EFA connects.

Every part is a launch on all ranks, run dry and timed: kernels of `nki_dist.kernels` by themselves
or followed by the sum over the ranks that share the work. A step is put together from their
simulated times as a pipeline goes ("1F1B"): each of `MICROBATCHES` goes forwards and backwards
through the stages, which are idle while it fills and drains, then gradients are summed up over the
UltraServers.

Left out: embedding and loss, the optimiser, what residual connections add, and gaps between
launches. No part overlaps another one, so what is hidden on a real machine counts in full here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels
from nki_dist.report.chakra import write_chakra

TOKENS, HIDDEN, HEAD, INNER = 1024, 8192, 128, 28672  # of a microbatch, and of a layer
LAYERS, MICROBATCHES = 8, 16  # of a stage; of a step
TENSOR_PARALLEL, STAGES = 64, 4  # ranks of an instance, instances of an UltraServer
DTYPE = nl.bfloat16


def output(like: Any) -> Any:
    return nl.ndarray(like.shape, dtype=like.dtype, buffer=nl.shared_hbm)


def summed(partial: Any, group: Any) -> Any:
    """The sum of what the ranks of a group have."""
    total = output(partial)
    ncc.all_reduce(srcs=[partial], dsts=[total], replica_group=group, op=nl.add)
    return total


# ---- launches -----------------------------------------------------------------------------------


@nki.jit
def projected(x, weight):
    """(head, tokens), as attention wants queries and keys."""
    return kernels.matmul(weight, x, transpose_lhs=True, transpose_rhs=True)


@nki.jit
def projected_back(y, weight, group):
    """What the ranks' heads add up to: (tokens, hidden)."""
    return summed(kernels.matmul(y, weight), group)


@nki.jit
def mlp(x, up, down, group):
    return summed(kernels.mlp(x, up, down), group)


@nki.jit
def mlp_gradients(x, up, down, dy, group):
    dx, dup, ddown = kernels.mlp_backward(x, up, down, dy)
    return summed(dx, group), dup, ddown


@nki.jit
def weight_gradient(x, dy):
    """(hidden, head)."""
    return kernels.matmul(x, dy, transpose_lhs=True)


@nki.jit
def input_gradient(dy, weight, group):
    """(tokens, hidden), summed over the heads."""
    return summed(kernels.matmul(dy, weight, transpose_rhs=True), group)


@nki.jit
def handed_over(x, pairs):
    """Activations for the next stage, or their gradients for the one before."""
    here, there = output(x), output(x)
    nisa.dma_copy(dst=here, src=x)
    ncc.collective_permute(srcs=[here], dsts=[there], source_target_pairs=pairs)
    return there


@nki.jit
def synchronised(gradients, group):
    here = output(gradients)
    nisa.dma_copy(dst=here, src=gradients)
    return summed(here, group)


# ---- parts --------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """Who works with whom in a world of so many ranks."""

    tensor: ncc.ReplicaGroup
    data: ncc.ReplicaGroup
    forwards: tuple[tuple[int, int], ...]
    backwards: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, ranks: int) -> Layout:
        grid = np.arange(ranks).reshape(-1, STAGES, TENSOR_PARALLEL)
        before, after = grid[:, :-1].ravel().tolist(), grid[:, 1:].ravel().tolist()
        tensor = ncc.ReplicaGroup(grid.reshape(-1, TENSOR_PARALLEL).tolist())
        data = ncc.ReplicaGroup(grid.reshape(len(grid), -1).T.tolist())
        return cls(tensor, data, tuple(zip(before, after)), tuple(zip(after, before)))


class Part(NamedTuple):
    """A launch: in which part of a step, how often a layer (or a stage, or a step) needs it."""

    name: str
    times: int
    kernel: Any
    arguments: tuple[Any, ...]


def spec(*shape: int, dtype: Any = DTYPE) -> nki.TensorSpec:
    return nki.TensorSpec(shape, dtype)


def parts(layout: Layout) -> Iterator[Part]:
    """All that a rank of one stage launches: for a microbatch, but for the sum of gradients."""
    x, head = spec(TOKENS, HIDDEN), spec(TOKENS, HEAD)
    turned, rows = spec(1, 1, HEAD, TOKENS), spec(1, 1, TOKENS, HEAD)
    inner = INNER // TENSOR_PARALLEL
    up, down = spec(HIDDEN, inner), spec(inner, HIDDEN)
    norm, weight, back = spec(HIDDEN), spec(HIDDEN, HEAD), spec(HEAD, HIDDEN)
    logs = spec(1, 1, 128, -(-TOKENS // 128), dtype=np.float32)

    yield Part("norms", 2, kernels.rms_norm, (x, norm))
    yield Part("attention", 3, projected, (x, weight))
    yield Part("attention", 1, kernels.flash_fwd, (turned, turned, rows))
    yield Part("attention", 1, projected_back, (head, back, layout.tensor))
    yield Part("MLP", 1, mlp, (x, up, down, layout.tensor))

    yield Part("norms, backwards", 2, kernels.rms_norm_backward, (x, norm, x))
    yield Part("attention, backwards", 4, weight_gradient, (x, head))
    yield Part("attention, backwards", 1, projected, (x, weight))
    both = (turned, turned, turned, turned, turned, logs)
    yield Part("attention, backwards", 1, kernels.flash_attn_bwd, both)
    yield Part("attention, backwards", 3, input_gradient, (head, weight, layout.tensor))
    yield Part("MLP, backwards", 1, mlp_gradients, (x, up, down, x, layout.tensor))

    yield Part("handing over", 1, handed_over, (x, layout.forwards))
    yield Part("handing over", 1, handed_over, (x, layout.backwards))
    of_a_rank = LAYERS * (4 * HIDDEN * HEAD + 2 * HIDDEN * inner)
    gradients = spec(of_a_rank // HIDDEN, HIDDEN)
    yield Part("gradients", 1, synchronised, (gradients, layout.data))


class Step(NamedTuple):
    """Simulated microseconds: of each part in a step, of exchanges between ranks, and in all."""

    by_part: dict[str, float]
    exchanging: float
    idle: float
    profiles: list[tuple[Part, Any]]

    @property
    def total(self) -> float:
        return sum(self.by_part.values()) + self.idle


def simulate(ranks: int) -> Step:
    """A step on so many ranks: whole UltraServers."""
    per_server = STAGES * TENSOR_PARALLEL
    if ranks < per_server or ranks % per_server:
        raise SystemExit(f"{ranks} ranks; must be a multiple of {per_server}: whole UltraServers")
    world = nki.World.trn2_ultraserver(
        count=ranks // per_server,
        check="refusals=off",  # stages are chains; AWS's release of today permutes in one ring
    )
    by_part: dict[str, float] = {}
    exchanging = 0.0
    profiles = []
    for part in parts(Layout.of(ranks)):
        profile = world.dry_run(part.kernel, *part.arguments, profile=True).profile
        profiles.append((part, profile))
        times = part.times
        if part.name not in ("handing over", "gradients"):
            times *= LAYERS
        if part.name != "gradients":
            times *= MICROBATCHES
        by_part[part.name] = by_part.get(part.name, 0.0) + times * profile.total_us
        exchanging += times * profile.critical.get("cc", 0.0)
    # While the pipeline fills and drains, a stage waits for as many microbatches as it has others.
    busy = sum(by_part.values()) - by_part["gradients"]
    return Step(by_part, exchanging, busy * (STAGES - 1) / MICROBATCHES, profiles)


def launches(step: Step) -> list[Any]:
    """The profiles of a rank's launches in a step, in order, for an execution trace."""

    def times(like: Callable[[str], bool]) -> list[Any]:
        return [
            profile for part, profile in step.profiles if like(part.name) for _ in range(part.times)
        ]

    there, back = times(lambda name: name == "handing over")
    of_layer = [times(lambda n: n in ("norms", "attention", "MLP")), times(lambda n: ", back" in n)]
    microbatch = [*of_layer[0] * LAYERS, there, *of_layer[1] * LAYERS, back]
    return [*microbatch * MICROBATCHES, *times(lambda name: name == "gradients")]


def show(step: Step, ranks: int, seconds: float) -> None:
    servers = ranks // (STAGES * TENSOR_PARALLEL)
    tokens = TOKENS * MICROBATCHES * servers
    print(f"{ranks:,} ranks, {servers} UltraServers: {step.total / 1000:,.1f} ms a step, simulated")
    for name, us in step.by_part.items():
        print(f"  {name:<22}{us / 1000:>9,.1f} ms{us / step.total:>7.1%}")
    print(f"  {'waiting for the pipeline':<24}{step.idle / 1000:>7,.1f} ms", end="")
    print(f"{step.idle / step.total:>7.1%}")
    print(f"  of all this, exchanges {step.exchanging / 1000:,.1f} ms; ", end="")
    print(f"{tokens / step.total:,.3f} million tokens/s; simulated in {seconds:.1f} s", flush=True)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ranks", type=int, nargs="*", default=[256], help="of each world")
    parser.add_argument("--chakra", metavar="DIR", help="also write execution traces (ASTRA-sim)")
    asked = parser.parse_args(arguments)
    for ranks in asked.ranks:
        started = time.perf_counter()
        step = simulate(ranks)
        show(step, ranks, time.perf_counter() - started)
        if asked.chakra:
            write_chakra(launches(step), asked.chakra, f"step{ranks}")


if __name__ == "__main__":
    main(sys.argv[1:])
