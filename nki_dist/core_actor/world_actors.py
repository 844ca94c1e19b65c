"""The Ray actors of a world: started, introduced to each other, replaced, ended.

Which cores share one and on which node it runs is for `Placement`; what they compute is for
`RayHost`. What died, was stopped, or went with its node is replaced before the next launch. A kept
Ray has few actors to lend; it is asked once for each session, and what it doesn't have, or has
lost, is started as in any other Ray.
"""

from __future__ import annotations

import pickle
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import ray
import ray.exceptions

from nki_dist.core_actor.actor import NeuronCore
from nki_dist.core_actor.calls import Calls
from nki_dist.core_actor.links import Handles, Net
from nki_dist.core_actor.looking import reached
from nki_dist.core_actor.lost import LOST
from nki_dist.core_actor.members import Member, compare, place, require_versions
from nki_dist.core_actor.nodes import socket_folders, usable_nodes
from nki_dist.core_actor.placement import Placement
from nki_dist.core_actor.pool.borrowed import Loan
from nki_dist.core_actor.processes import Process
from nki_dist.core_actor.ray_use import Joined
from nki_dist.core_actor.starting import await_start
from nki_dist.hbm.nodes import here, title
from nki_dist.linking.passes import left_out

GRACE: Final = 3.0  # seconds to stop in, once a launch has failed
LOOK_EVERY: Final = 0.1  # seconds between looks at actors that don't finish, at first
WAVE: Final = 32  # actors that start at once; more keep raylets from answering for many seconds


class WorldActors:
    """See the module's docstring; actors go by number, which is that of their pack.

    Attributes:
        actors: None where one isn't there.
        nodes: of Ray, by actor.
        processes: number and Ray node of each.
        world: what the world is called in titles of processes and logs.
        where: the folders in which those of this machine are reached by mailbox.
    """

    def __init__(self, placement: Placement, transport: str, threads: int | None = None) -> None:
        self.packs = placement.packs
        self.nodes = placement.nodes
        self.actors: list[Any] = [None] * len(self.packs)
        self.where: dict[int, tuple[str, str]] = {}
        self.calls = Calls(self.actors)
        self._placement, self._transport, self._threads = placement, transport, threads
        self.world = uuid.uuid4().hex[:6]
        self._loan: Loan | None = None  # of the session
        self.processes: list[tuple[int, str]] = []
        self._members: dict[int, Member] = {}  # of those that have been introduced
        self._born: dict[int, Process] = {}  # processes of this machine
        self._name = uuid.uuid4().hex  # of the folders with their sockets
        self._differ = ""  # what was told of differences between nodes

    def start(self, joined: Joined, token: str) -> list[int]:
        """Start those that aren't there, and introduce all to each other.

        Args:
            token: names this set of processes.

        Returns:
            Those that no start has introduced before: also what an earlier one that failed left.

        Raises:
            LaunchError: they don't start, and nobody says why.
        """
        self.discard_stopped()
        if self._placement.plain and self._loan is None:
            self._loan = Loan(self.actors.count(None))
        new = [n for n in range(len(self.packs)) if n not in self._members]
        members = dict(self._members)
        for first in range(0, len(new), WAVE):
            members.update(self._make(new[first : first + WAVE], joined))
        process_of = {c.core: n for n, cores in enumerate(self.packs) for c in cores}
        folders = {node: (path, self._name) for node, path in socket_folders().items()}
        connecting, handles, threads = [], Handles.of(self.actors), self._threads_by_node()
        for n, node in enumerate(self.nodes):
            near = self._placement.near(n, self._transport)
            shared = folders[node], threads[node], left_out()
            net = Net(token, handles, n, process_of, near, *shared)
            connecting.append(self.actors[n].connect.remote(net))
        reached = await_start(connecting, self.packs, self.nodes, joined.watchdog.check)
        ordered, home = [members[n] for n in range(len(self.packs))], here()
        self._differ = compare(ordered, self._differ)
        self.processes = [(m.pid, m.node) for m in ordered]
        self._born = {
            n: Process.of(p) for n, (p, node) in enumerate(self.processes) if node == home
        }
        self.where = {n: folders[home] for n in self._born if reached[n]}
        self._members = members
        return new

    def _make(self, new: Sequence[int], joined: Joined) -> dict[int, Member]:
        """Start those that are missing, as many as a machine bears; who all of these are."""
        for n in [n for n in new if self.actors[n] is None]:
            self.actors[n] = self._new_actor(n)
        launcher = place()
        answers = await_start(
            [self.actors[n].who.remote(launcher) for n in new],
            [self.packs[n] for n in new],
            [self.nodes[n] for n in new],
            joined.watchdog.check,
            lambda told: require_versions(map(Member.of, told)),
        )
        return dict(zip(new, map(Member.of, answers)))

    def _new_actor(self, n: int) -> Any:
        """An actor that simulates the cores of a pack; it needn't be up yet."""
        cores = self.packs[n]
        lent = self._loan.take() if self._loan is not None and self.nodes[n] == here() else None
        if lent is not None:
            lent.become.remote(cores, self.world)  # calls of a group are carried out in their order
            return lent
        # It has no name in Ray, which would make time series of its metrics for each.
        kind = NeuronCore.options(**self._placement.options(n))  # type: ignore[attr-defined]
        return kind.remote(pickle.dumps(cores), self.world)

    def _threads_by_node(self) -> dict[str, int]:
        """Threads of each process: they share their node's processors."""
        sharing, there = Counter(self.nodes), usable_nodes()
        return {
            node: self._threads or max(1, there.get(node, 1) // count)
            for node, count in sharing.items()
        }

    def discard(self, n: int) -> None:
        """Give an actor up; one that is only out of reach must not touch the stacks any more."""
        ray.kill(self.actors[n])
        self.actors[n] = None
        self._members.pop(n, None)
        self.calls.forget(n)
        if n in self._born and (process := self._born.pop(n)).stopped():
            process.kill()  # Ray asks a process to end, which such a one won't

    def discard_stopped(self) -> None:
        """Give up those that are known to be stopped."""
        for n in [n for n in self._born if self.stopped(n)]:
            self.discard(n)

    def discard_dead(self) -> None:
        """Find out, when one couldn't be reached, which are dead or stopped, and give them up."""
        pending = {n: a.status.remote() for n, a in enumerate(self.actors) if a is not None}
        ray.wait(list(pending.values()), num_returns=len(pending), timeout=GRACE)
        for n, future in pending.items():
            try:
                if self.stopped(n):
                    self.discard(n)
                else:
                    ray.get(future, timeout=0)
            except LOST:
                self.discard(n)
            except ray.exceptions.GetTimeoutError:
                continue  # busy; whoever needs an answer says for how long
        time.sleep(LOOK_EVERY)

    def on_living_nodes(self) -> bool:
        """Whether those that aren't there could be: all their nodes are reached."""
        nodes = {node for actor, node in zip(self.actors, self.nodes) if actor is None}
        return all(map(reached, nodes))

    def missing(self) -> str:
        """Where those that aren't there should be, for a message."""
        nodes = Counter(node for actor, node in zip(self.actors, self.nodes) if actor is None)
        each = [f"{count:,} on {title(node)}" for node, count in nodes.most_common()]
        return f"Missing are {', '.join(each) or 'none by now'}"

    def end(self) -> None:
        """End all processes."""
        for n, actor in enumerate(self.actors):
            if actor is not None:
                self.discard(n)
        self.calls.clear()

    def forget(self) -> None:
        """The session is over, and they with it."""
        if self._loan is not None:
            self._loan.close()
            self._loan = None
        self.actors[:] = [None] * len(self.packs)
        self._born, self._members = {}, {}
        self.calls.clear()

    def title(self, n: int) -> str:
        """One as messages call it."""
        ends = dict.fromkeys(core.title for core in (self.packs[n][0], self.packs[n][-1]))
        which = f"process {self.processes[n][0]} that simulates {' to '.join(ends)}"
        home = self.nodes[n] == here()
        return which if home else f"{which} on Ray node {self.nodes[n]}"

    def core(self, n: int) -> int:
        """The first core of one."""
        return self.packs[n][0].core

    def stopped(self, n: int) -> bool:
        """Whether one is known to be stopped, which only this machine's can be."""
        return n in self._born and self._born[n].stopped()
