"""Why mutants survive, by file, line before and line after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TUNING: Final = "tuning: another size is as right"

REASONS: Final[Mapping[tuple[str, str, str], str]] = {
    (
        "nki_dist/collectives/members.py",
        "@dataclass(frozen=True)",
        "@dataclass(frozen=False)",
    ): "equivalent: nobody assigns to it",
    (
        "nki_dist/core_actor/links.py",
        "LARGEST_RING: Final = 16 << 20",
        "LARGEST_RING: Final = 15 << 20",
    ): _TUNING,
    (
        "nki_dist/core_actor/ring.py",
        '_ORDER: Final = "little" if np.little_endian else "big"',
        '_ORDER: Final = "little" if np.little_endian else "little"',
    ): "equivalent on little-endian machines",
    (
        "nki_dist/dtypes/casts.py",
        "if dst is dt.float32 or (dst is dt.tfloat32 and (src.is_float or src.bits == 8)):",
        "if dst is dt.float32 or (dst is dt.tfloat32 and (src.is_float or src.bits <= 8)):",
    ): "equivalent: no type has fewer bits",
    (
        "nki_dist/dtypes/mx.py",
        "pairs = np.stack([values[codes & 0xF], values[codes >> 4]], axis=-1).view(np.uint64)",
        "pairs = np.stack([values[codes & 0xF], values[codes >> 4]], axis=+1).view(np.uint64)",
    ): "equivalent: the second axis of two is the last",
    (
        "nki_dist/dtypes/tables.py",
        "count = 16 if storage == np.dtype(ml_dtypes.float4_e2m1fn) else 256",
        "count = 17 if storage == np.dtype(ml_dtypes.float4_e2m1fn) else 256",
    ): "equivalent: codes have 4 bits, a value more is never asked for",
    (
        "nki_dist/hbm/layout.py",
        "@lru_cache(maxsize=256)",
        "@lru_cache()",
    ): _TUNING,
    (
        "nki_dist/isa/operands.py",
        'if isinstance(label, str) and label.rsplit(".", 1)[-1] in members:',
        'if isinstance(label, str) and label.rsplit(".", 2)[-1] in members:',
    ): "equivalent: the last part is the same",
    (
        "nki_dist/timing/conflicts.py",
        "break",
        "continue",
    ): "equivalent: looks at columns that have their box already, and leaves them",
    (
        "nki_dist/timing/core.py",
        "return max(self._locks.get(name, (0.0, -1))[0] for name in locks)",
        "return max(self._locks.get(name, (0.0, +1))[0] for name in locks)",
    ): "equivalent: only the time is taken from the pair",
}
