"""Collectives of several streams at once, for `nki-dist nccom-test --streams-json`.

All streams of an iteration start together, each carries out its operations one after the other. A
stream has a CC-core of each rank for itself, the first stream those that are left, and there are
no more streams than CC-cores. While several streams are under way they load the same links between
chips, as groups of one operation that share chips do; when one is done the others go on faster. The
time of a row is the mean of those of the stream's operations of the iteration.

Doesn't model HBM and DMA engines that streams share, nor the shares that they get of EFA between
instances.

Sources: of the Neuron SDK's documentation, neuron-runtime/explore/compute-comm-overlap.rst for
CC-cores, and tools/neuron-sys-tools/nccom-test.rst, which leaves open whether the time of a row is
of one operation or of all of an iteration; its bandwidths are those of one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Final

from nki_dist.cli.nccom_test import options
from nki_dist.cli.nccom_test.plan import OPERATIONS, TYPES, Plan
from nki_dist.cli.shared.command import refused
from nki_dist.errors import LaunchError

COUNT: Final = "ops_per_iter"
_OWN: Final = frozenset(
    {
        "operation",
        "datatype",
        "minbytes",
        "maxbytes",
        "stepbytes",
        "stepfactor",
        "data_parallel_dimension",
        "custom_replica_groups",
        "algorithm",
        "check",
        "seed",
    }
)
Timed = tuple[int, str, float]  # size, algorithm, microseconds


@dataclass(frozen=True)
class Stream:
    """What one stream does.

    Attributes:
        arguments: the command's, with the stream's in their place.
        count: operations of an iteration.
    """

    arguments: argparse.Namespace
    count: int


def of_file(arguments: argparse.Namespace) -> list[Stream]:
    """The streams of the command's file.

    Raises:
        LaunchError: it can't be read, or a stream asks for what can't be simulated.
    """
    file = arguments.streams_json
    found = options.read_json(file, "--streams-json")
    streams = found.get("streams") if isinstance(found, dict) else None
    if not (isinstance(streams, list) and streams and all(isinstance(s, dict) for s in streams)):
        raise _wrong(file, 'must be {"streams": [{"operation": "all_reduce", ...}, ...]}')
    return [_stream(arguments, file, n, given) for n, given in enumerate(streams)]


def _stream(arguments: argparse.Namespace, file: str, number: int, given: dict[str, Any]) -> Stream:
    unknown = sorted(given.keys() - _OWN - {COUNT})
    if unknown:
        raise _wrong(
            file,
            f"stream {number} has {', '.join(unknown)}; allowed: {', '.join(sorted(_OWN))} and "
            f"{COUNT}",
        )
    count = given.get(COUNT, 1)
    if type(count) is not int or count < 1:
        raise _wrong(file, f"{COUNT} {count!r} of stream {number}; must be a positive integer")
    own = copy(arguments)
    own.stats = list(arguments.stats)
    if "operation" in given:
        _settle_command(own)
    for name, value in given.items():
        if name == COUNT:
            continue
        setattr(own, name, _value(file, number, name, value))
    options.settle(own)
    if OPERATIONS[own.operation].paired:
        raise _wrong(
            file,
            f"{own.operation} of stream {number}: how it shares links isn't known; allowed: "
            "operations of groups",
        )
    if own.nnodes not in (None, 1) or own.nworkers > options.instance_of(own):
        raise _wrong(file, "the streams run on several instances, whose shares of EFA aren't known")
    return Stream(own, count)


def _settle_command(own: argparse.Namespace) -> None:
    """What stands before OPERATION on the command line may be it, and isn't a kind of check."""
    if own.operation is None and own.check in OPERATIONS:
        own.check = "random"
    if own.operation is None and own.stats and own.stats[-1] in OPERATIONS:
        own.stats.pop()


def _value(file: str, number: int, name: str, value: Any) -> Any:
    if name == "check" and isinstance(value, bool):
        return "random" if value else None
    if name in ("data_parallel_dimension", "seed"):
        good = type(value) is int
    else:
        good = isinstance(value, str) or type(value) is int
        value = str(value) if good else value
    if name == "datatype" and good and value not in TYPES:
        raise _wrong(file, f"datatype {value} of stream {number}; allowed: {', '.join(TYPES)}")
    if not good:
        raise _wrong(file, f"{name} {value!r} of stream {number}; must be as on the command line")
    return value


def _wrong(file: str, what: str) -> LaunchError:
    return refused(f"--streams-json {file}: {what}")


# ---- time ---------------------------------------------------------------------------------------


def times(
    plans: Sequence[Plan], sizes: Sequence[Sequence[int]], counts: Sequence[int]
) -> list[list[Timed]]:
    """Of each stream, the rows of its table; short sweeps stay at their last size."""
    found: list[list[Timed]] = [[] for _ in plans]
    for n in range(max(map(len, sizes))):
        now = [s[min(n, len(s) - 1)] for s in sizes]
        for block, row in zip(found, iteration(plans, now, counts)):
            block.append(row)
    return found


def iteration(plans: Sequence[Plan], sizes: Sequence[int], counts: Sequence[int]) -> list[Timed]:
    """The times of one iteration, in which each stream does so many operations of its size."""
    channels = shares(plans[0], len(plans))
    names = [plan.time_us(size)[0] for plan, size in zip(plans, sizes)]
    left = [float(count) for count in counts]  # operations
    ends = [0.0] * len(plans)
    now = 0.0
    while under_way := [n for n, operations in enumerate(left) if operations > 0]:
        each = {
            n: plans[n].time_us(sizes[n], [plans[m] for m in under_way if m != n], channels[n])[1]
            for n in under_way
        }
        passed = min(left[n] * each[n] for n in under_way)
        now += passed
        for n in under_way:
            left[n] -= passed / each[n]
            if left[n] < 1e-9:
                left[n], ends[n] = 0.0, now
    return [(size, name, end / count) for size, name, end, count in zip(sizes, names, ends, counts)]


def shares(plan: Plan, streams: int) -> list[int]:
    """How many of a rank's channels, one for each CC-core, each stream has.

    Raises:
        LaunchError: there are more streams.
    """
    channels = plan.topology.arch.cc_cores_per_core * plan.topology.lnc
    if streams > channels:
        raise refused(
            f"--streams-json: {streams} streams; a rank has {channels} CC-cores, one for each",
            got=streams,
            most=channels,
        )
    return [channels - streams + 1, *[1] * (streams - 1)]


__all__ = ["Stream", "iteration", "of_file", "shares", "times"]
