"""Tools as the SDK of the Model Context Protocol takes them; imported where it is installed.

Calls wait in threads, so that the server goes on answering. A client that takes a request back
ends the call's processes.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from nki_dist.cli.mcp.tools import Tools


def register_tools(server: Any, tools: Tools, jobs: int) -> None:
    """Add every tool to an `MCPServer`; at most `jobs` calls run at once."""
    import anyio

    limiter = anyio.CapacityLimiter(jobs)
    for name in Tools.NAMES:
        server.add_tool(_served(getattr(tools, name), limiter), name=name, structured_output=True)


def _served(tool: Callable[..., dict[str, Any]], limiter: Any) -> Callable[..., Any]:
    """An asynchronous function with the tool's parameters and docstring."""
    import anyio

    @functools.wraps(tool)
    async def served(**arguments: Any) -> dict[str, Any]:
        cancelled = threading.Event()
        done = functools.partial(tool, **arguments, _cancelled=cancelled.is_set)

        async def watch() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                cancelled.set()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            # Isn't abandoned when the request is: what it started is gone when it returns.
            found: dict[str, Any] = await anyio.to_thread.run_sync(done, limiter=limiter)
            group.cancel_scope.cancel()
        return found

    signature = inspect.signature(tool, eval_str=True)
    shown = [p for p in signature.parameters.values() if not p.name.startswith("_")]
    served.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    served.__annotations__ = {p.name: p.annotation for p in shown} | {
        "return": signature.return_annotation
    }
    return served
