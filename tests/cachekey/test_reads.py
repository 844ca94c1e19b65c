"""What the key of a kernel is put together from: reads of code objects, and snapshots."""

from __future__ import annotations

from typing import Any

from nki_dist.cachekey import Fingerprinter
from nki_dist.cachekey.reads import reads_of
from tests.cachekey.kernels import namespace


def test_snapshots_are_bounded() -> None:
    keys = Fingerprinter(snapshots=3)
    kernels = [namespace(f"def kernel(x): return {n}")["kernel"] for n in range(8)]
    first = [keys.fingerprint(each, ()) for each in kernels]
    assert first == [keys.fingerprint(each, ()) for each in kernels]
    assert len(keys._snapshots) == 3


def test_plan_names_every_read() -> None:
    def sample(k: Any) -> Any:
        import collections.abc as abc

        first, second = k, abc.Sized
        return [settings.tile.SIZE + first for _ in second], lambda: other + k  # noqa: F821

    chains = {(each.root, each.name, each.attributes) for each in reads_of(sample.__code__).chains}
    assert ("import", "collections", ("abc", "Sized")) in chains
    assert ("global", "settings", ("tile", "SIZE")) in chains
    assert ("global", "other", ()) in chains
