"""A Ray that is started for one program comes up without helpers that nobody in it asks.

Ray starts five Python programs beside its servers, and its start waits for one of them. For a
node that will never have others, with logs that stay in files and no dashboard, three do nothing:
the autoscaler's monitor, the log monitor, which reads logs to pass them to programs that want to
see them, and the API server, which without a dashboard only reports usage. They take a third of
the processor time of a start. Ray has settings for the first two (RayParams.no_monitor and
include_log_monitor) that `ray.init` doesn't take, hence this: while it runs, the methods that
start them do nothing. A Ray that has no such methods starts all it wants. Known of Ray 2.60.

Never done to a Ray that other programs may join: kept ones, and those that the user starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from nki_dist.core_actor.ray_parts import ray_part, replaced
from nki_dist.tricks import uses

API_SERVER: Final = "start_api_server"
HELPERS: Final = ("start_monitor", "start_log_monitor", API_SERVER)


@contextmanager
def without_helpers() -> Iterator[None]:
    """While Ray is started; the caller sees to it that this thread alone does so."""
    node = ray_part("ray._private.node", "Node")
    original = vars(node) if isinstance(node, type) and uses("ray-helpers") else {}
    there = [name for name in HELPERS if callable(original.get(name))]
    instead = {n: _without_address if n == API_SERVER else _start_nothing for n in there}
    with replaced(node, instead):
        yield


def _start_nothing(_: Any) -> None:
    """Instead of a monitor."""


def _without_address(node: Any, **_: Any) -> None:
    """Instead of the API server: as it does without a dashboard, say that there is no address."""
    node._webui_url = ""
