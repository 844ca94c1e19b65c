"""Three processes in one, which have mapped their memory once; actors are lists of messages."""

from __future__ import annotations

import queue
import uuid
from types import SimpleNamespace

from nki_dist.core_actor.doorbell import Doorbell
from nki_dist.core_actor.folder import Folder
from nki_dist.core_actor.links import Links, Net
from nki_dist.core_actor.node_memory import NodeMemory
from nki_dist.runtime.messages import Message

WHAT = {"op": "all_gather", "group": [0, 1]}


class Trio:
    """Three processes with one core each; messages on the way of actor calls are counted."""

    def __init__(self, near: bool = True) -> None:
        self.called = 0
        token = uuid.uuid4().hex
        self.folder = Folder.alone()
        self.inboxes = [queue.SimpleQueue() for _ in range(3)]
        actors = [
            SimpleNamespace(deliver=self._deliver(n), attach=self._attach(n)) for n in range(3)
        ]
        self.links = []
        self.memory = NodeMemory.joined(self.folder, "memory", 3) if near else None
        for n in range(3):
            others = frozenset(range(3)) - {n} if near else frozenset()
            net = Net(token, actors, n, {0: 0, 1: 1, 2: 2}, others)
            doorbell = Doorbell(self.folder, net.doorbell(n), 0.01)
            self.links.append(Links(net, doorbell, self.inboxes[n], self.memory))
        self.sequence = 0
        self.begin(1)

    def begin(self, launch):
        for links in self.links:
            links.begin(launch)

    def close(self):
        for links in self.links:
            links.close()
        self.folder.close(whole=True)

    def _deliver(self, n):
        def remote(launch, message):
            self.called += 1
            self.inboxes[n].put((launch, message))

        return SimpleNamespace(remote=remote)

    def _attach(self, n):
        return SimpleNamespace(remote=lambda attach: self.links[n].attach(attach))

    def send(self, source, target, payload, what=WHAT, number=7):
        m = Message(source, target, "collective", self.sequence, payload, what, "k.py:3", number)
        self.sequence += 1
        self.links[source].send(m)
        return m
