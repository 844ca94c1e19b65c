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
from nki_dist.cli.shared.command import add_command, check_positive, refused
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
    for option, default, metavar, said in (
        ("--timeout", 300.0, "S", "seconds per call"),
        ("--memory", 4096, "MIB", "MiB per call"),
        ("--file-size", 256, "MIB", "MiB of each file that a call writes"),
        ("--jobs", os.cpu_count() or 1, "N", "calls at once; others wait"),
    ):
        parser.add_argument(
            option,
            type=type(default),
            default=default,
            metavar=metavar,
            help=f"{said} (default {default:g})",
        )


def run(arguments: argparse.Namespace) -> int:
    """Serve until stdin ends.

    Raises:
        LaunchError: a limit isn't positive, there is no such folder, or the SDK isn't installed.
    """
    check_positive(arguments, "timeout", "memory", "file_size", "jobs")
    folder = Path(arguments.folder).resolve()
    if not folder.is_dir():
        raise refused(f"--folder {folder}: there is no such folder")
    try:
        from mcp.server import MCPServer

        from nki_dist.cli.mcp.calls import Calls
        from nki_dist.cli.mcp.tools import Tools
    except ImportError as error:
        raise LaunchError(
            f"nki-dist mcp needs the SDK of the Model Context Protocol, version 2: {error}",
            code="command-package",
            hint="pip install 'nki_dist[mcp]'",
        ) from error
    server = MCPServer(
        "nki_dist", instructions=Tools.__doc__, version=__version__, log_level="WARNING"
    )
    calls = Calls(folder, arguments.memory * MIB, arguments.file_size * MIB)
    Tools(folder, calls, arguments.timeout, arguments.jobs).register(server)
    server.run("stdio")
    return 0
