"""Why mutants survive, by file (or "", anywhere), line before and line after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TUNING: Final = "tuning: another size is as right"
_FROZEN: Final = "equivalent: nobody assigns to it"

REASONS: Final[Mapping[tuple[str, str, str], str]] = {
    ("", "@dataclass(frozen=True)", "@dataclass(frozen=False)"): _FROZEN,
    ("", "@dataclass(frozen=True)", "@dataclass()"): _FROZEN,
    (
        "nki_dist/compiler/passes/conflicts.py",
        "periods = self.cells.reshape(-1, grid.period // grid.unit)",
        "periods = self.cells.reshape(- 2, grid.period // grid.unit)",
    ): "equivalent: to NumPy any negative size is what is left",
    (
        "nki_dist/compiler/passes/conflicts.py",
        "return low_a < high_b and low_b < high_a",
        "return low_a < high_b or low_b < high_a",
    ): "tuning: a first look, the second finds the same",
    (
        "nki_dist/compiler/passes/packing.py",
        "for k in range(last, max(first, 1) - 1, -1):",
        "for k in range(last, max(first, 1) ^ 1, -1):",
    ): "tuning: more segments for a while, of the same room",
    (
        "nki_dist/compiler/passes/skeleton.py",
        'for name in ("poison", "runtime_psum"):',
        'for name in ("poison", "scalar"):',
    ): "tuning: room for masks that nobody asks",
    (
        "nki_dist/core_actor/bell.py",
        'span = struct.pack("@ll", whole, int((patience - whole) * 1e6))',
        'span = struct.pack("@ll", whole, int((patience - whole) * 999999.0))',
    ): "equivalent: Linux rounds it up to its clock, in milliseconds",
    (
        "nki_dist/core_actor/bell.py",
        'span = struct.pack("@ll", whole, int((patience - whole) * 1e6))',
        'span = struct.pack("@ll", whole, int((patience - whole) * 1000001.0))',
    ): "tuning: a microsecond more patience",
    (
        "nki_dist/core_actor/bell.py",
        "self._socket.recv(1, socket.MSG_DONTWAIT)",
        "self._socket.recv( 2, socket.MSG_DONTWAIT)",
    ): "equivalent: a ring has one byte",
    (
        "nki_dist/core_actor/links.py",
        "LARGEST_RING: Final = 16 << 20",
        "LARGEST_RING: Final = 15 << 20",
    ): _TUNING,
    (
        "nki_dist/core_actor/links.py",
        "os.sched_yield()",
        "pass",
    ): "tuning: others get the processor later",
    (
        "nki_dist/core_actor/ring.py",
        '_ORDER: Final = "little" if np.little_endian else "big"',
        '_ORDER: Final = "little" if np.little_endian else "little"',
    ): "equivalent on little-endian machines",
    (
        "nki_dist/core_actor/ring.py",
        "WRITTEN, LAUNCH, RECORDS, BEFORE, SIZE, READ, ASLEEP = 0, 1, 2, 3, 4, 8, 9",
        "WRITTEN, LAUNCH, RECORDS, BEFORE, SIZE, READ, ASLEEP = 0, 1, 5, 3, 4, 8, 9",
    ): "equivalent: any free word, both sides look there",
    (
        "nki_dist/dtypes/casts.py",
        "if dst is dt.float32 or (dst is dt.tfloat32 and (src.is_float or src.bits == 8)):",
        "if dst is dt.float32 or (dst is dt.tfloat32 and (src.is_float or src.bits <= 8)):",
    ): "equivalent: no type has fewer bits",
    (
        "nki_dist/dtypes/casts.py",
        'with np.errstate(all="ignore"):',
        "with np.errstate():",
    ): "equivalent with this NumPy, which casts signalling NaN without a warning",
    (
        "nki_dist/dtypes/casts.py",
        "if dtype.storage.isbuiltin == 1 and dtype is not dt.bool_:",
        "if not dtype.storage.isbuiltin == 1 and dtype is not dt.bool_:",
    ): "equivalent with this ml_dtypes, which copies bits, too",
    (
        "nki_dist/dtypes/mx.py",
        "pairs = np.stack([values[codes & 0xF], values[codes >> 4]], axis=-1).view(np.uint64)",
        "pairs = np.stack([values[codes & 0xF], values[codes >> 4]], axis=+1).view(np.uint64)",
    ): "equivalent: the second axis of two is the last",
    (
        "nki_dist/dtypes/rounding.py",
        "if inp.min() >= lowest and inp.max() <= high: # False if there is a NaN",
        "if inp.min() > lowest and inp.max() <= high: # False if there is a NaN",
    ): "equivalent: the way for all values gives the same, later",
    (
        "nki_dist/dtypes/rounding.py",
        "high = np.nextafter(high, np.float32(0))",
        "high = np.nextafter(high, np.float32( 1))",
    ): "equivalent: both lie below",
    (
        "nki_dist/dtypes/tables.py",
        "count = 16 if storage == np.dtype(ml_dtypes.float4_e2m1fn) else 256",
        "count = 17 if storage == np.dtype(ml_dtypes.float4_e2m1fn) else 256",
    ): "equivalent: codes have 4 bits, a value more is never asked for",
    (
        "nki_dist/dtypes/tables.py",
        'index = scratch.get("index", inp.shape, INDEX)',
        'index = scratch.get("a", inp.shape, INDEX)',
    ): "equivalent: other scratch that nobody uses meanwhile",
    (
        "nki_dist/dtypes/tables.py",
        'np.take(table, index, out=out.view(U32), mode="wrap")',
        "np.take(table, index, out=out.view(U32))",
    ): "tuning: the slower way that looks at indices",
    (
        "nki_dist/hbm/layout.py",
        'if s.role == "shared":',
        'if s.role >= "shared":',
    ): "equivalent: no other role comes later in the alphabet",
    (
        "nki_dist/isa/collectives/_roles.py",
        'most = 1 if i.opcode == "all_gather" and first.region.on_chip else 0',
        'most = 2 if i.opcode == "all_gather" and first.region.on_chip else 0',
    ): "equivalent: tensors in SBUF of more than two dimensions are refused",
    (
        "nki_dist/isa/collectives/_roles.py",
        "if len(ids) == len(value) == len(set(ids)):",
        "if len(ids) == len(value) <= len(set(ids)):",
    ): "equivalent: a set of the same things is never larger",
    (
        "nki_dist/isa/collectives/_roles.py",
        'if len(i["srcs"]) > 1 and i["srcs"][0].region.on_chip:',
        'if len(i["srcs"]) > 1 and i["srcs"][ -1].region.on_chip:',
    ): "equivalent: all are in the same memory, checked before",
    (
        "nki_dist/isa/nc_n_gather.py",
        'return Cost(cycles=groups * arch.gpsimd_start + i["dst"].free_size, known=False)',
        'return Cost(cycles=groups * arch.gpsimd_start + i["indices"].free_size, known=False)',
    ): "equivalent: both have the same size, see the check",
    (
        "nki_dist/isa/reach.py",
        "if s >= 0:",
        "if s >= 1:",
    ): "equivalent: a stride of 0 adds nothing to either end",
    (
        "nki_dist/isa/reach.py",
        "same_size = a.dtype.itemsize == whole.dtype.itemsize",
        "same_size = a.dtype.itemsize <= whole.dtype.itemsize",
    ): "equivalent: the same pattern of smaller elements stays inside, too",
    (
        "nki_dist/isa/tensor_copy_predicated.py",
        'one_in_psum = any(a.region.value == "psum" for a in tiles)',
        'one_in_psum = any(a.region.value <= "psum" for a in tiles)',
    ): 'equivalent: the other memory that is allowed is "sbuf"',
    (
        "nki_dist/linking/blas.py",
        "_ROWS: Final = 520",
        "_ROWS: Final = 521",
    ): _TUNING,
    (
        "nki_dist/linking/placing.py",
        "self._body_on_lanes(cores) if threads > 1 else (linked.body, assign(linked.panels))",
        "self._body_on_lanes(cores) if threads != 1 else (linked.body, assign(linked.panels))",
    ): "equivalent: there is one at least",
    (
        "nki_dist/runtime/messages.py",
        "items = sorted([*queue, message], key=lambda m: m.sequence)",
        "items = sorted([*queue, message])",
    ): "equivalent: what precedes `sequence` is the same for a whole queue",
    (
        "nki_dist/timing/core.py",
        "return max(self._locks.get(name, (0.0, -1))[0] for name in locks)",
        "return max(self._locks.get(name, (0.0, +1))[0] for name in locks)",
    ): "equivalent: only the time is taken from the pair",
    (
        "nki_dist/timing/critical.py",
        "if c.held and at in c.held and self.now >= c.end[at]:",
        "if c.held and at in c.held and self.now <= c.end[at]:",
    ): "open: takes an exchange that is issued right behind a late one with another rank",
    (
        "nki_dist/timing/dma.py",
        'return "dma swdge" if mode == "swdge" else ""',
        'return "dma swdge" if mode >= "swdge" else ""',
    ): 'equivalent: the other mode that comes here is "none"',
    (
        "nki_dist/timing/engines.py",
        'locks.append("sbuf")',
        'locks.append("vector")',
    ): "equivalent: only that the two names differ matters",
    (
        "nki_dist/timing/engines.py",
        "if self.window <= 0 or self.slow >= 1:",
        "if self.window <= 0 and self.slow >= 1:",
    ): "equivalent: no window or no slow speed, no time is lost in it",
    (
        "nki_dist/timing/dma.py",
        "self.free = 0.0",
        "self.free = -1.0",
    ): "equivalent: nobody asks before 0",
    (
        "nki_dist/timing/engines.py",
        'clock = arch.engine_clock_ghz.get(i.engine, arch.engine_clock_ghz["sync"])',
        'clock = arch.engine_clock_ghz.get(i.engine, arch.engine_clock_ghz["scalar"])',
    ): "equivalent with today's figures: both clocks are the same",
}
