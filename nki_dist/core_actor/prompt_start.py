"""A start of Ray waits for nothing that it needn't.

Two waits of Ray's start are longer than what they wait for:

- A node's agent listens on one fixed port of the machine, though Ray, which tells the others where,
  would take any. If somebody has it, such as the Ray of another program, the agent tries for three
  seconds before it goes on without, and the raylet waits for the agent. Here the system chooses.
- Whether the raylet has come up is asked for once a second, and it takes a little more than one.
  Here it is asked for often, before it is asked for in Ray's way.

Ray has settings for neither that `ray.init` takes, hence this: while it runs, two of Ray's methods
do that first. A Ray without them starts as it likes. Read in Ray 2.54, tried with 2.60.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from nki_dist.core_actor.ray_parts import ray_part, replaced
from nki_dist.tricks import uses

EVERY: Final = 0.02  # seconds between looks
LONGEST: Final = 5.0  # seconds; Ray waits for half a minute more, and says what failed


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


# module, class, method, and what is done before it
_BEFORE: Final[tuple[tuple[str, str, str, Callable[..., None]], ...]] = (
    ("ray._private.node", "Node", "start_raylet", _on_any_port),
    ("ray._private.state", "GlobalState", "get_node", _once_alive),
)


@contextmanager
def without_waits() -> Iterator[None]:
    """While Ray is started; the caller sees to it that this thread alone does so."""
    with ExitStack() as stack:
        for module, name, method, before in _BEFORE if uses("ray-waits") else ():
            owner = ray_part(module, name)
            original = vars(owner).get(method) if isinstance(owner, type) else None
            if callable(original):
                stack.enter_context(replaced(owner, {method: _after(before, original)}))
        yield


def _after(before: Callable[..., None], original: Callable[..., Any]) -> Callable[..., Any]:
    def method(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        return original(*args, **kwargs)

    return method
