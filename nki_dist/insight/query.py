"""Queries of records: which tensor, line, output or element is meant, and writes to it."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial

import numpy as np

from nki_dist.insight.capture import Looks
from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region, region
from nki_dist.insight.replay import Key, Launched, Place
from nki_dist.insight.steps import Write, Writes, unanswered
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Storage, instructions
from nki_dist.program.walk import returned


def is_line(where: str | None, query: str | int) -> bool:
    """Whether a kernel line is meant: "file.py:12", with or without folders, or 12."""
    if where is None:
        return False
    if isinstance(query, int):
        return where.endswith(f":{query}")
    return where == query or where.endswith("/" + query.lstrip("/")) or query.endswith("/" + where)


def is_tensor(s: Storage, query: str | int) -> bool:
    """Whether a tensor is meant: by its name, or what the source calls it."""
    return query in {s.name, s.called, s.title} - {""}


def unknown(launched: Launched, query: str | int) -> str:
    """What is wrong with the name of a tensor or line; nothing if the kernel has one."""
    names: dict[str, None] = {}
    for program in (p for c in dict.fromkeys(launched.each) for p in c.programs):
        for i in instructions(program.body):
            where = program.where(i.location)
            if is_line(where, query):
                return ""
            names[where or ""] = None
        for s in program.storages:
            if is_tensor(s, query):
                return ""
            names[s.title] = None
    near = get_close_matches(str(query), names, 3, 0.3)
    kernel = launched.compiled.kernel
    return f"{query!r} is no tensor and no line of {kernel}" + (
        f"; near are {', '.join(near)}" if near else ""
    )


def check_query(launched: Launched, query: str | int) -> None:
    """Some tensor or line of the kernel is meant.

    Raises:
        LaunchError: none is.
    """
    if text := unknown(launched, query):
        raise unanswered(
            text,
            "ask for a tensor by name= or by what the kernel calls it, for a line as 'file.py:12'",
        )


def check_core(launched: Launched, core: int | None, rank: int | None) -> None:
    """There are such cores.

    Raises:
        LaunchError: there are none.
    """
    lnc, ranks = launched.slots[0].cores, launched.slots[0].ranks
    for name, value, count in (("core", core, lnc), ("rank", rank, ranks)):
        if value is not None and value not in range(count):
            fault = f"{name}={value!r}; the launch has {name}s 0 to {count - 1}"
            raise unanswered(fault, got=value, least=0, most=count - 1)


def writes_of(log: Log, query: str | int, core: int | None, rank: int | None) -> Writes:
    """Everything written to a tensor or from a line; see `Record.writes`."""
    check_query(log.launched, query)
    check_core(log.launched, core, rank)
    found, done = Writes(), {}

    def told(number: int, regions: list[Region], place: Place) -> None:
        for r in regions:
            values = r.values(r.get(place.kit))
            found.append(Write(*log.who(number), r.storage.title, number, values))

    for number, i in enumerate(log.instructions):
        if i is not None:
            where, lnc_core, of, _ = log.who(number)
            if core in (None, lnc_core) and rank in (None, of):
                written = INSTRUCTIONS[i.opcode].writes(i)
                if not is_line(where, query):
                    written = [a for a in written if is_tensor(a.storage, query)]
                if written:
                    done[number] = partial(told, number, log.regions(number, written))
    Looks(log, done, after=True)
    return found


def output_access(launched: Launched, output: int | str, rank: int) -> Access:
    """An output of the kernel as it is run, by number, place or name.

    Raises:
        LaunchError: there is none such.
    """
    program = launched.each[rank].programs[0]
    leaves = list(returned(program.outputs))
    for n, (path, a) in enumerate(leaves):
        if output in (n, path, a.storage.title):
            s = program.storages[a.storage.number]
            dtype = s.dtype if a.dtype is a.storage.dtype else a.dtype
            return Access(s, a.offset, a.shape, a.strides, dtype)
    names = ", ".join(path or a.storage.title for path, a in leaves)
    fault = f"output={output!r}; the kernel returned {len(leaves)} tensors: {names}"
    raise unanswered(fault, returned=len(leaves))


def output_place(
    launched: Launched, output: int | str, index: int | Sequence[int], rank: int
) -> tuple[Key, np.ndarray, str]:
    """The memory, the bytes in it and the name of an element of what the kernel returned.

    Raises:
        LaunchError: there is no such output or element.
    """
    check_core(launched, None, rank)
    a = output_access(launched, output, rank)
    try:
        pairs = zip(np.atleast_1d(index).tolist(), a.shape, strict=True)
        at = [range(size)[n] for n, size in pairs]
    except (IndexError, TypeError, ValueError):
        example = ", ".join("0" for _ in a.shape)
        raise unanswered(
            f"index={index!r}; the output has shape {a.shape}",
            f"give one number for each dimension, such as ({example}), or as expected= an array "
            "of the output's shape",
            got=str(index),
            shape=list(a.shape),
        ) from None
    r = region(next(s for s in launched.slots if s.rank == rank), a)
    element = np.ravel_multi_index(tuple(at), a.shape) if at else 0
    return r.key, r.bytes_of(np.atleast_1d(element)), f"{a.storage.title}{at}"
