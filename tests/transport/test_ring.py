"""Rings and doorbells: records come out as they went in, between two processes too."""

from __future__ import annotations

import multiprocessing
import struct
from collections import deque
from multiprocessing import shared_memory

import numpy as np
import pytest

from nki_dist.core_actor.doorbell import TOKEN, Doorbell
from nki_dist.core_actor.folder import Folder, Sender
from nki_dist.core_actor.ring import ASLEEP, HEADER, LAUNCH, READ, RECORDS, WRITTEN, Ring

PATIENCE = 60.0


def record(n: int, size: int) -> bytes:
    return struct.pack("=I", size) + bytes((n + k) % 251 for k in range(size - 4))


@pytest.mark.parametrize("capacity", [64, 1000, 4096])
def test_records_in_any_order_of_puts_and_pops(capacity):
    rng = np.random.default_rng(capacity)
    memory = np.zeros(HEADER + capacity, np.uint8)
    writer, reader = Ring(memory), Ring.reading(memory)
    inside: deque[bytes] = deque()
    refused = 0
    for n in range(2000):
        if rng.random() < 0.55:
            data = record(n, int(rng.integers(4, capacity // 3)))
            if writer.put(data, 1, True):
                inside.append(data)
            else:
                refused += 1
                assert sum(map(len, inside)) > capacity // 4  # it wasn't nearly empty
        else:
            got = reader.peek()
            assert got == (inside[0] if inside else None)
            assert got == reader.peek()  # looking takes nothing away
            if got is not None:
                reader.pop(got)
                inside.popleft()
    assert refused


def test_a_record_that_can_never_fit_is_refused():
    memory = np.zeros(HEADER + 64, np.uint8)
    ring = Ring(memory)
    assert not ring.put(record(0, 72), 1, True)
    assert ring.put(record(0, 64), 1, True)
    assert Ring.reading(memory).peek() == record(0, 64)


def test_counts_by_launch():
    memory = np.zeros(HEADER + 1024, np.uint8)
    writer, reader = Ring(memory), Ring.reading(memory)
    for launch, counts in ((1, True), (1, False), (1, True), (3, True)):
        assert writer.put(record(launch, 16), launch, counts)
        if launch == 1:
            assert reader.words[LAUNCH] == 1
    assert (reader.words[LAUNCH], reader.words[RECORDS]) == (3, 1)
    while (got := reader.peek()) is not None:
        reader.pop(got)
    assert reader.words[RECORDS] == 1  # ever, not now


class Noted:
    """Words or bytes of a ring that note who looks and who writes."""

    def __init__(self, shared, events: list[str]) -> None:
        self.shared, self.events = shared, events

    def _note(self, how: str, at: int | slice) -> None:
        name = "data" if isinstance(at, slice) else {READ: "read", ASLEEP: "asleep"}.get(at, "")
        event = f"{how} {'written' if at == WRITTEN else name}"
        if name or at == WRITTEN:
            self.events += [event] if self.events[-1:] != [event] else []

    def __getitem__(self, at):
        self._note("get", at)
        return self.shared[at]

    def __setitem__(self, at, value):
        self._note("set", at)
        self.shared[at] = value


def noted(ring: Ring) -> list[str]:
    events: list[str] = []
    ring.words, ring._data = Noted(ring.words, events), Noted(ring._data, events)
    ring.fence = lambda: events.append("fence")
    return events


def test_fences_stand_between_data_and_what_says_that_it_is_there():
    """Whose absence only another processor would notice, and seldom."""
    memory = np.zeros(HEADER + 64, np.uint8)
    writer, reader = Ring(memory), Ring.reading(memory)
    wrote, read = noted(writer), noted(reader)
    assert writer.put(record(0, 40), 1, True) and not writer.reader_sleeps()
    assert wrote == ["get read", "fence", "set data", "fence", "set written", "fence", "get asleep"]
    reader.pop(reader.peek())
    assert read == ["get written", "fence", "get data", "fence", "set read"]


def _echo(name: str, capacity: int, path: str, rounds: int) -> None:
    shared = shared_memory.SharedMemory(name)
    memory = np.ndarray(2 * capacity, np.uint8, shared.buf)
    folder = Folder(path)
    doorbell, sender = Doorbell(folder, "child", PATIENCE), Sender(folder)
    inward, outward = Ring.reading(memory[:capacity]), Ring(memory[capacity:])
    for _ in range(rounds):
        got = _next(inward, doorbell)
        while not outward.put(got, 1, True):
            pass
        if outward.reader_sleeps():
            sender.send("parent", TOKEN)
    del inward, outward, memory
    shared.close()


def _next(ring: Ring, doorbell: Doorbell) -> bytes:
    while True:
        got = ring.peek()
        if got is None:
            ring.words[ASLEEP] = 1
            ring.fence()
            got = ring.peek()
            if got is None:
                assert doorbell.wait(), "nobody rang"
        ring.words[ASLEEP] = 0
        if got is not None:
            ring.pop(got)
            return got


def test_two_processes_wake_each_other(folder):
    """Every sleep ends by a ring: a single one that is lost shows as a wait of a minute."""
    capacity, rounds = HEADER + 600, 2000
    shared = shared_memory.SharedMemory(create=True, size=2 * capacity)
    memory = np.ndarray(2 * capacity, np.uint8, shared.buf)
    memory[:] = 0
    doorbell, sender = Doorbell(folder, "parent", PATIENCE), Sender(folder)
    spawn = multiprocessing.get_context("spawn")
    child = spawn.Process(target=_echo, args=(shared.name, capacity, folder.path, rounds))
    child.start()
    outward, inward = Ring(memory[:capacity]), Ring.reading(memory[capacity:])
    sent: deque[bytes] = deque()
    for n in range(rounds):
        sent.append(record(n, 4 + n % 97))
        assert outward.put(sent[-1], 1, True)
        if outward.reader_sleeps():
            sender.send("child", TOKEN)
        if n % 3 == 2:  # several at once
            while sent:
                assert _next(inward, doorbell) == sent.popleft()
    while sent:
        assert _next(inward, doorbell) == sent.popleft()
    child.join()
    assert child.exitcode == 0
    doorbell.close()
    sender.close()
    del outward, inward, memory
    shared.close()
    shared.unlink()


def test_a_bell_is_patient_and_remembers(folder):
    name = "doorbell"
    doorbell, sender = Doorbell(folder, name, 0.01), Sender(folder)
    assert not doorbell.wait()
    for _ in range(1000):  # more tokens than the socket holds
        sender.send(name, TOKEN)
    assert doorbell.wait()
    assert not doorbell.wait()
    doorbell.close()
    sender.send(name, TOKEN)  # nobody is there
    sender.close()
