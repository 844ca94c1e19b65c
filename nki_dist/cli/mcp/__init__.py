"""`nki-dist mcp`: check, run, time and look into kernels as tools of the Model Context Protocol.

Serve the Model Context Protocol on stdin and stdout, for programs that write kernels. Its tools are
check, run, estimate, rank, record and report: those commands, with JSON results and errors as data.
Each call is a process of its own that is ended when it reaches a limit; calls never start Ray
unless a program insists. Needs the extra: pip install 'nki_dist[mcp]'.

[options]

docs/mcp.md has the tools, their results and the same for those that have a shell. Programs run with
the rights of whoever starts the server, within the limits, which are no sandbox: docs/security.md.

examples:
  nki-dist mcp
  nki-dist mcp --folder kernels --timeout 60 --memory 2048
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from nki_dist import __version__
from nki_dist.cli.mcp.calls import Limits
from nki_dist.cli.mcp.tools import Tools
from nki_dist.cli.shared.command import add_command, refused
from nki_dist.cli.shared.workers import MIB
from nki_dist.errors import LaunchError


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "mcp",
        "offer check, run, estimate, rank, record and report to other programs",
        __doc__,
        run,
    )
    parser.add_argument(
        "--folder",
        default=".",
        metavar="DIR",
        help="where programs run; only files below it can be named (default: this one)",
    )
    parser.add_argument(
        "--timeout", type=float, default=300.0, metavar="S", help="seconds per call (default 300)"
    )
    parser.add_argument(
        "--memory", type=int, default=4096, metavar="MIB", help="MiB per call (default 4096)"
    )
    parser.add_argument(
        "--file-size",
        type=int,
        default=256,
        metavar="MIB",
        help="MiB of each file that a call writes (default 256)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        metavar="N",
        help="calls at once; others wait (default: processors)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until stdin ends.

    Raises:
        LaunchError: a limit isn't positive, there is no such folder, or the SDK isn't installed.
    """
    limits = Limits(arguments.timeout, arguments.memory * MIB, arguments.file_size * MIB)
    limits.check()
    if arguments.jobs < 1:
        raise refused(f"--jobs {arguments.jobs}; must be positive")
    folder = Path(arguments.folder).resolve()
    if not folder.is_dir():
        raise refused(f"--folder {folder}: there is no such folder")
    serve(Tools(folder, limits), arguments.jobs)
    return 0


def serve(tools: Tools, jobs: int) -> None:
    """Serve tools on stdin and stdout.

    Raises:
        LaunchError: the SDK isn't installed.
    """
    try:
        import anyio
        from mcp.server import MCPServer
    except ImportError as error:
        raise LaunchError(
            f"nki-dist mcp needs the SDK of the Model Context Protocol, version 2: {error}",
            code="command-package",
            hint="pip install 'nki_dist[mcp]'",
        ) from error
    from nki_dist.cli.mcp.served import register_tools

    server = MCPServer(
        "nki_dist", instructions=Tools.__doc__, version=__version__, log_level="WARNING"
    )
    register_tools(server, tools, jobs)
    anyio.run(server.run_stdio_async)
