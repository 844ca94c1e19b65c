"""Bookkeeping of where a number comes from.

Invariant: a `Fact` is immutable, picklable, and always says how much its value may be trusted.
Nothing here knows about NeuronCores; the numbers are in `common.py` and `trn1.py` to `trn3.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["published", "derived", "fitted", "assumed"]

# The short names used in source texts, and the documents of the AWS Neuron SDK they stand for.
DOCUMENTS: Final[tuple[tuple[str, str], ...]] = (
    ("A2", "nki/guides/architecture/trainium_inferentia2_arch.rst"),
    ("A3", "nki/guides/architecture/trainium2_arch.rst"),
    ("A4", "nki/guides/architecture/trainium3_arch.rst"),
    ("HW", "about-neuron/arch/neuron-hardware/*.rst"),
    ("LNC", "about-neuron/arch/neuron-features/logical-neuroncore-config.rst"),
    ("ISA", "nki/api/nki/isa/__init__.py (SDK 2.32)"),
    ("ISA26", "general/nki/api/nki/isa/__init__.py (SDK 2.26, the last with cost formulas)"),
    ("SHR", "nki/api/nki.api.shared.rst"),
    ("TS", "nki/api/nki.language.tile_size.rst"),
    ("PERF", "nki/deep-dives/nki_perf_guide.rst"),
    ("DMAB", "nki/deep-dives/nki-dma-bandwidth-guide.rst"),
    ("DMAO", "nki/get-started/about/nki-dma-overview.rst"),
    ("DGE", "nki/deep-dives/nki-dge.rst"),
    ("COLL", "neuron-runtime/about/collectives.rst"),
    ("INTRA", "neuron-runtime/explore/intranode-collective-comm.rst"),
    ("INTER", "neuron-runtime/explore/internode-collective-comm.rst"),
    ("CCO", "neuron-runtime/explore/compute-comm-overlap.rst"),
    ("NCT", "tools/neuron-sys-tools/nccom-test.rst, figures of its examples"),
    ("LS", "tools/neuron-sys-tools/neuron-ls.rst"),
    ("LAYOUT", "neuron-runtime/explore/runtime-performance-tips.rst"),
    ("ASYNC", "vllm-neuron/docs/design/framework/async_execution.md"),
    ("EXP", "tools/neuron-explorer/*.rst"),
    ("PROFILE", "figures of profiles in the AWS guides, read by eye"),
    ("NKL", "source of nki-library"),
    ("ROWS", "times that authors of public kernels measured; docs/accuracy.md has the rows"),
)


class FrozenMap(Mapping[str, Any]):
    """A read-only mapping that can be hashed and pickled (`MappingProxyType` can do neither)."""

    def __init__(self, items: Mapping[str, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True)
class Fact:
    """A value with its trust (`kind`) and where it was found (`source`).

    `published`: stated in a document. `derived`: arithmetic on published numbers, or read off a
    published figure. `fitted`: chosen so that simulated times of whole kernels are those measured
    (`bench/data`); the text says which rows tell it. `assumed`: no figure exists; the text says why
    this one was chosen.
    """

    value: Any
    kind: Kind
    source: str

    def __post_init__(self) -> None:
        if isinstance(self.value, Mapping) and not isinstance(self.value, FrozenMap):
            object.__setattr__(self, "value", FrozenMap(self.value))

    def __str__(self) -> str:
        return f"{self.kind}: {self.source}"


def published(value: Any, source: str) -> Fact:
    """A value some document states."""
    return Fact(value, "published", source)


def derived(value: Any, source: str) -> Fact:
    """A value computed from published numbers or read off a published figure."""
    return Fact(value, "derived", source)


def fitted(value: Any, source: str) -> Fact:
    """A value fitted to measured times; `python -m bench.accuracy` lists them, and keeps count."""
    return Fact(value, "fitted", source)


def assumed(value: Any, source: str) -> Fact:
    """A value nobody publishes; `source` gives the reason for the choice."""
    return Fact(value, "assumed", source)
