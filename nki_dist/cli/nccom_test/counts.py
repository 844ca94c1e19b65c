"""Counts and displacements of nccom-test's alltoallv and all_gatherv.

In elements. Without a file, every rank sends equal parts of its input. A rank's chunk from the n-th
rank of its group lands in the n-th of equal slots of the output, unless `recv_displs` say where.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from nki_dist.cli.nccom_test.options import read_json
from nki_dist.cli.nccom_test.plan import Plan
from nki_dist.cli.shared.command import refused
from nki_dist.errors import LaunchError

_FLAG: Final = "--variable-size-op-metadata"
_NAMES: Final = ("send_counts", "send_displs", "recv_counts", "recv_displs")


@dataclass(frozen=True)
class Chunk:
    """What one rank sends another: `source[start:stop]` goes to `target[at:]`."""

    source: int
    target: int
    start: int
    stop: int
    at: int


class Counts:
    """The counts of a plan.

    Args:
        file: JSON as the guide describes it, or None for equal parts.

    Raises:
        LaunchError: the file can't be read, or its lists have wrong lengths or don't agree.
    """

    def __init__(self, plan: Plan, file: str | None) -> None:
        self._plan, self._file = plan, file
        self._gathers = plan.op.opcode == "all_gather_v"
        self._entries = self._read(file) if file else []
        self.displaced = any(entry["recv_displs"] for entry in self._entries)

    def _refuse(self, why: str) -> LaunchError:
        return refused(f"{_FLAG} {self._file}: {why}")

    def _read(self, file: str) -> Sequence[Mapping[str, list[int]]]:
        found = read_json(file, _FLAG)
        entries = found.get("metadata") if isinstance(found, dict) else None
        workers, ranks = len(self._plan.workers), self._plan.ranks
        if not isinstance(entries, list) or len(entries) not in (1, workers):
            raise self._refuse(f'"metadata" must be a list of 1 or {workers} entries')
        sent = 1 if self._gathers else ranks
        lengths: dict[str, tuple[int, ...]] = dict.fromkeys(_NAMES, (0, ranks))
        lengths |= {"send_counts": (sent,), "send_displs": (sent,)}
        for entry in entries:
            for name in _NAMES:
                values = entry.get(name, []) if isinstance(entry, dict) else None
                good = isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)
                if not good or len(values or ()) not in lengths[name]:
                    allowed = " or ".join(map(str, lengths[name]))
                    raise self._refuse(
                        f"{name} is {values}; must be a list of {allowed} numbers of elements"
                    )
        if len({bool(entry.get("recv_displs")) for entry in entries}) > 1:
            raise self._refuse("recv_displs must be given for all ranks or for none")
        named = [{name: entry.get(name, []) for name in _NAMES} for entry in entries]
        return named * (workers // len(named))

    def _entry(self, rank: int, read: int) -> Mapping[str, list[int]]:
        """Of a rank of the world; those that the plan leaves out do as those it has."""
        if not self._entries:
            parts = 1 if self._gathers else self._plan.ranks
            count = read // parts
            starts = [count * n for n in range(parts)]
            return dict(zip(_NAMES, ([count] * parts, starts, [], [])))
        instance = self._plan.topology.ranks_per_instance
        each = len(self._plan.workers) // self._plan.topology.instances
        node, within = divmod(rank, instance)
        return self._entries[node * each + within % each]

    def chunks(self, group: tuple[int, ...], read: int, written: int) -> Iterator[Chunk]:
        """All that the ranks of a group send, each also to itself."""
        for n, source in enumerate(group):
            entry = self._entry(source, read)
            for m, target in enumerate(group):
                column = 0 if self._gathers else m
                start, count = entry["send_displs"][column], entry["send_counts"][column]
                lands = self._entry(target, read)["recv_displs"]
                at = lands[n] if lands else n * (written // len(group))
                yield Chunk(source, target, start, start + count, at)

    def check(self, read: int, written: int) -> None:
        """Refuse counts that leave a buffer, or that sender and receiver don't agree about.

        Args:
            read, written: elements of a rank's input and output.

        Raises:
            LaunchError: with the first such count.
        """
        for group in self._plan.groups:
            slot = written // len(group)
            for chunk in self.chunks(group, read, written):
                count, n = chunk.stop - chunk.start, group.index(chunk.source)
                who = f"rank {group.index(chunk.source)} of a group to {group.index(chunk.target)}"
                if chunk.stop > read:
                    raise self._refuse(
                        f"elements [{chunk.start}, {chunk.stop}) from {who}, of an input of {read}"
                    )
                if chunk.at + count > written or (not self.displaced and count > slot):
                    raise self._refuse(
                        f"{count} elements from {who} at {chunk.at}, of an output of {written} "
                        f"with {len(group)} slots of {slot}"
                    )
                known = self._entry(chunk.target, read)["recv_counts"]
                if known and known[n] != count:
                    raise self._refuse(f"{count} elements from {who}, which expects {known[n]}")

    def tensors(self, read: int) -> list[np.ndarray[Any, Any]]:
        """The metadata tensor of every rank of the world."""
        columns = self._plan.ranks
        found = []
        for rank in range(self._plan.topology.ranks):
            entry = self._entry(rank, read)
            rows = np.zeros((4 if self.displaced else 3, columns), np.uint32)
            for row, name in ((0, "send_counts"), (1, "send_displs"), (3, "recv_displs")):
                if entry[name]:
                    rows[row, : len(entry[name])] = entry[name]
            found.append(rows)
        return found
