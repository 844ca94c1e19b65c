"""A Ray that is started here starts faster, says less, and can't be reached from elsewhere.

Ray has no settings for any of this that `ray.init` takes, so parts of it that are private are other
ones while it starts. A Ray that has them elsewhere, or of another kind, is left alone and does what
it likes: nothing but what `docs/tricks.md` says is lost. Read in Ray 2.54, tried with 2.60.

- Ray starts five Python programs beside its servers, and its start waits for one of them. For a
  node that will never have others, with logs that stay in files and no dashboard, three do nothing:
  the autoscaler's monitor, the log monitor, which reads logs to pass them to programs that want to
  see them, and the API server, which without a dashboard only reports usage. They take a third of
  the processor time of a start. Never done to a Ray that other programs may join: kept ones, and
  those that the user starts.
- A node's agent listens on one fixed port of the machine, though Ray, which tells the others where,
  would take any. If somebody has it, such as the Ray of another program, the agent tries for three
  seconds before it goes on without, and the raylet waits for the agent. Here the system chooses.
- Whether the raylet has come up is asked for once a second, and it takes a little more than one.
  Here it is asked for often, before it is asked for in Ray's way.
- Ray's servers listen on all interfaces, except where it takes machines for lonely ones, as it does
  on macOS and Windows: then everything is bound to the loopback. An argument
  `_node_ip_address="127.0.0.1"` is replaced by the machine's address, so the constant says so.
- A raylet warns that a node starts many processes again for every few more, to each program of the
  cluster, whether or not it shows logs: 44 lines for 128 processes on 2 processors. The function
  with which Ray prints what raylets say is asked through another that lets by the first such line
  after the start of a world, and all other lines.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeAlias

from nki_dist.core_actor.nodes import private
from nki_dist.forks import once
from nki_dist.tricks import uses

EVERY: Final = 0.02  # seconds between looks
LONGEST: Final = 5.0  # seconds; Ray waits for half a minute more, and says what failed
NODE: Final = ("ray._private.node", "Node")
PRINTS: Final = "print_to_stdstream"
ABOUT: Final = "worker processes have been started on node"

Replacements: TypeAlias = "Mapping[tuple[str, str, str], Callable[[Any], Any]]"
"""By module, class (or "") and name: what takes the place of a part, made of it."""


@contextmanager
def replacing(*tricks: str) -> Iterator[None]:
    """While Ray is started or joined: what these tricks (see `tricks`) replace in it is replaced.

    The caller sees to it that one thread does so.
    """
    parts = [part for trick in tricks if uses(trick) for part in _PARTS[trick].items()]
    with ExitStack() as stack:
        for (module, owner, name), make in parts:
            try:
                found = importlib.import_module(module)
            except ImportError:
                continue
            where = getattr(found, owner, None) if owner else found
            original = getattr(where, "__dict__", {}).get(name)
            instead = make(original)
            if isinstance(original, type(instead)):
                stack.callback(setattr, where, name, original)
                setattr(where, name, instead)
        yield


def _start_nothing(_: Any) -> None:
    """Instead of a monitor."""


def _without_address(node: Any, **_: Any) -> None:
    """Instead of the API server: as it does without a dashboard, say that there is no address."""
    node._webui_url = ""


def _on_any_port(node: Any, *_: Any) -> None:
    params: Any = getattr(node, "_ray_params", None)
    if hasattr(params, "dashboard_agent_listen_port"):
        params.dashboard_agent_listen_port = 0


def _once_alive(state: Any, node_id: str) -> None:
    ends = time.monotonic() + LONGEST
    while time.monotonic() < ends:
        if any(node["NodeID"] == node_id and node["Alive"] for node in state.node_table()):
            return
        time.sleep(EVERY)


def _after(before: Callable[..., None]) -> Callable[[Any], Any]:
    """Makes of a method one that does something else first."""

    def make(original: Any) -> Any:
        def method(*args: Any, **kwargs: Any) -> Any:
            before(*args)
            return original(*args, **kwargs)

        return method

    return make


_PARTS: Final[Mapping[str, Replacements]] = {
    "ray-helpers": {
        (*NODE, "start_monitor"): lambda _: _start_nothing,
        (*NODE, "start_log_monitor"): lambda _: _start_nothing,
        (*NODE, "start_api_server"): lambda _: _without_address,
    },
    "ray-waits": {
        (*NODE, "start_raylet"): _after(_on_any_port),
        ("ray._private.state", "GlobalState", "get_node"): _after(_once_alive),
    },
    "ray-loopback": {("ray._private.ray_constants", "", "ENABLE_RAY_CLUSTER"): lambda _: False},
}


class SlowStarts:
    """What is printed in this process of starts with many processes."""

    def __init__(self) -> None:
        self._told = False
        worker = private("worker")
        self._print = getattr(worker, PRINTS, None)
        if callable(self._print) and uses("ray-warnings"):
            setattr(worker, PRINTS, self._printed)

    def starting(self) -> None:
        """Processes of a world start: one warning does."""
        self._told = False

    def _printed(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        assert self._print is not None
        lines = data.get("lines", ()) if isinstance(data, dict) else ()
        if any(ABOUT in str(line) for line in lines):
            if self._told:
                return None
            self._told = True
        return self._print(data, *args, **kwargs)


@once
def slow_starts() -> SlowStarts:
    """Those of this process."""
    return SlowStarts()
