"""Signs of a mistake in who reads what: something is read once too often, and its like by nobody.

Like those of `signs` these hold for any kernel, are no proof, and know nothing of what a kernel is
for: they look at which elements instructions read and write, not at values.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Key
from nki_dist.insight.steps import Step
from nki_dist.isa import INSTRUCTIONS

Sign = tuple[Step, str]
Uses = dict[Key, list[tuple[int, Region]]]


def unread(log: Log, steps: list[Step], complete: bool) -> Sign | None:
    """The first sign there is: a lost result, a window that stands still, a twin that is unused, a
    start that is all there is left.

    Args:
        steps: the way back.
        complete: it didn't end at a limit; otherwise of a step it may not be known what it read.
    """
    if not complete:
        return None
    reads, writes = _uses(log, steps)
    return (
        _lost(log, steps, reads, writes)
        or _still(log, steps, reads)
        or _twin(log, steps, reads, writes)
        or _started(log, steps)
    )


def _uses(log: Log, steps: list[Step]) -> tuple[Uses, Uses]:
    """Who reads and who writes which memory of the cores on the way."""
    cores = {log.cores[s.step] for s in steps}
    reads: Uses = defaultdict(list)
    writes: Uses = defaultdict(list)
    for number, i in enumerate(log.instructions):
        if i is None or log.cores[number] not in cores:
            continue
        for r in (*log.reads(number), *log.chosen_by(number)):
            reads[r.key].append((number, r))
        for r in log.writes(number):
            writes[r.key].append((number, r))
    return reads, writes


def _plain(log: Log, number: int) -> bool:
    """Whether an instruction computes one result of operands, for its core alone."""
    i = log.at(number)
    spec = INSTRUCTIONS[i.opcode]
    bits = spec.effects.bits
    return (
        (bits is None or (bits.when is not None and not bits.when(i)))
        and not spec.synchronises
        and bool(spec.reads(i))
        and len(spec.writes(i)) == 1
    )


def _lost(log: Log, steps: list[Step], reads: Uses, writes: Uses) -> Sign | None:
    """The step that computed something over a result that nothing had read.

    Who computes a result and drops it had another use for it: a buffer that should have been two,
    or a sum that should have gone on. Scratch results of instructions that also give another
    don't count, nor do fills and loads.
    """
    for step in reversed(steps):
        if not _plain(log, step.step):
            continue
        (r,) = log.writes(step.step)
        if r.key[0] != "local":
            continue
        before = [(n, w) for n, w in writes[r.key] if n < step.step and w.holds(r.places).any()]
        if not before:
            continue
        number, earlier = before[-1]
        if not _plain(log, number) or not r.holds(earlier.places).all():
            continue
        if earlier.storage is not r.storage or _born_since(log, r.key, number, step.step):
            continue
        if any(isinstance(s, Step) and s.step == number for s in step.reads):
            continue  # a sum that goes on
        used = (a for n, a in reads[r.key] if number < n <= step.step)
        if any(a.holds(earlier.places).any() for a in used):
            continue
        where = log.launched.where(log.cores[number], log.at(number))
        return step, (
            f"it overwrote {step.tensor}, which {where} had computed at step {number} and nothing "
            "had read"
        )
    return None


def _born_since(log: Log, key: Key, first: int, last: int) -> bool:
    """Whether the memory was given to another tensor, or another round's, in between."""
    return any(first < n < last and n in log.unwritten for n in log.written.get(key, ()))


def _still(log: Log, steps: list[Step], reads: Uses) -> Sign | None:
    """The step that reads the same window of a tensor as another, where windows slide.

    Instructions read overlapping windows of one shape; two of them are the same, and the elements
    that the next one would have reached are read by none.
    """
    numbers = {s.step: s for s in reversed(steps)}
    for key, uses in reads.items():
        seen: dict[tuple[int, ...], int] = {}
        for number, r in uses:
            name = r.places.tobytes()
            window = (hash(name), r.places.size)
            first = seen.setdefault(window, number)
            if first == number or number not in numbers or not _slides(log, key, r, uses):
                continue
            where = log.launched.where(log.cores[first], log.at(first))
            return numbers[number], (
                f"it read the same part of {r.storage.title} as {where}, and the part that a "
                "window further on has is read by none"
            )
    return None


def _slides(log: Log, key: Key, r: Region, uses: list[tuple[int, Region]]) -> bool:
    """Whether others read a window that overlaps this one, and nobody the one after it."""
    if r.access is None or not r.places.size:
        return False
    for _, other in uses:
        if other.access is None or other.access.shape != r.access.shape:
            continue
        by = int(r.places[0] - other.places[0])
        if not by or not np.array_equal(other.places + by, r.places):
            continue
        if not other.holds(r.places).any():
            continue  # beside one another, they don't slide
        fresh = (r.places + by)[~r.holds(r.places + by)]
        inside = fresh.size and fresh.min() >= 0 and fresh.max() < r.storage.nbytes
        if inside and not any(a.holds(fresh).any() for _, a in uses) and _same_rows(r, fresh):
            return True
    return False


def _same_rows(r: Region, places: np.ndarray) -> bool:
    """Whether these bytes are of rows (all but the last dimension) that a region has, too."""
    row = r.storage.shape[-1] * r.storage.dtype.itemsize
    return bool(np.isin(places // row, r.places // row).all())


def _twin(log: Log, steps: list[Step], reads: Uses, writes: Uses) -> Sign | None:
    """The last step that reads a tensor whose twin nobody reads.

    Two tensors of one shape and type are loaded from arguments; one is read by two lines, the
    other by none.
    """
    loaded = {key: made for key, made in writes.items() if _is_loaded(log, made)}
    idle = [made[0][1].storage for key, made in loaded.items() if not reads.get(key)]
    if not idle:
        return None
    numbers = {s.step: s for s in reversed(steps)}
    for key, made in loaded.items():
        s = made[0][1].storage
        twins = [t for t in idle if (t.shape, t.dtype) == (s.shape, s.dtype)]
        readers = [n for n, _ in reads.get(key, ())]
        lines = {log.launched.where(log.cores[n], log.at(n)) for n in readers}
        if not twins or len(lines) < 2 or readers[-1] not in numbers:
            continue
        return numbers[readers[-1]], (
            f"it read {s.title}, which another line reads, too; {twins[0].title} is like it, was "
            "loaded from an argument, and nothing reads it"
        )
    return None


def _started(log: Log, steps: list[Step]) -> Sign | None:
    """The fill that a running maximum or minimum began with, if it is all that is left of it.

    What a running result begins with must lose to every number; this one won over all of them.
    """
    last = next((s for s in steps if not s.moved), None)
    rounds, step = 0, last
    while step is not None and step.values.size == 1 and _selects(log, step):
        befores = [r for r in step.reads if isinstance(r, Step) and r.tensor == step.tensor]
        others = [r for r in step.reads if r not in befores]
        same = len(befores) == 1 and np.array_equal(befores[0].values, step.values)
        if not same or any(np.isin(step.values, r.values).any() for r in others) or not others:
            return None
        rounds, step = rounds + 1, befores[0]
    if (
        step is None
        or rounds < 2
        or INSTRUCTIONS[log.at(step.step).opcode].reads(log.at(step.step))
    ):
        return None
    assert last is not None
    return step, f"the {rounds} rounds up to {last.location} left nothing but this start"


def _selects(log: Log, step: Step) -> bool:
    """Whether it is the larger or smaller of two numbers."""
    return any(str(v) in ("maximum", "minimum") for v in log.at(step.step).args.values())


def _is_loaded(log: Log, made: list[tuple[int, Region]]) -> bool:
    """Whether a tensor only ever got what an argument holds."""
    if made[0][1].key[0] != "local":
        return False
    return all(
        any(r.storage.role == "input" for r in log.reads(number))
        and INSTRUCTIONS[log.at(number).opcode].effects.bits is not None
        for number, _ in made
    )


__all__ = ["unread"]
