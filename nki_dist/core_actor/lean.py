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

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

API_SERVER: Final = "start_api_server"
HELPERS: Final = ("start_monitor", "start_log_monitor", API_SERVER)


@contextmanager
def without_helpers() -> Iterator[None]:
    """While Ray is started; the caller sees to it that this thread alone does so."""
    node: Any = _node_class()
    kept = {name: vars(node)[name] for name in HELPERS if callable(vars(node).get(name))}
    for name in kept:
        setattr(node, name, _without_address if name == API_SERVER else _start_nothing)
    try:
        yield
    finally:
        for name, method in kept.items():
            setattr(node, name, method)


def _node_class() -> type:
    """What starts the processes of a node; one without any where Ray has put it elsewhere."""
    try:
        found = getattr(importlib.import_module("ray._private.node"), "Node", None)
    except ImportError:
        found = None
    return found if isinstance(found, type) else type("Node", (), {})


def _start_nothing(_: Any) -> None:
    """Instead of a monitor."""


def _without_address(node: Any, **_: Any) -> None:
    """Instead of the API server: as it does without a dashboard, say that there is no address."""
    node._webui_url = ""
