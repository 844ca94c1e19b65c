"""`nki-dist view`: the page of a program's launch, with everything, for this machine's browser.

Run a program as `nki-dist run` does, and show what a launch of its kernels read and wrote, as
pictures, in a browser of this machine: the page of `record --html`, with all elements of every
step. The launch is carried out again for what is looked at. Ends at Ctrl-C.
"""

# Listens on the loopback only, and answers only addresses that begin with a word that was made for
# this call and is printed nowhere else: other users of the machine don't know it.

from __future__ import annotations

import argparse
import hmac
import secrets
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from nki_dist.cli.record import expected_of, of_rank
from nki_dist.cli.shared import queries
from nki_dist.cli.shared.command import add_command, refused
from nki_dist.errors import NkiError
from nki_dist.insight.live import Live
from nki_dist.launcher.queries import Querier


def register(subparsers: Any) -> None:
    purpose = "look at what a program's launches read and wrote"
    parser = add_command(subparsers, "view", purpose, __doc__, run)
    parser.add_argument("--expected", metavar="FILE", help="as of `record`, of output 0 of rank 0")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: a free one")
    queries.add_launches(parser)
    parser.set_defaults(answers=False)  # it goes on until Ctrl-C, which is no failure


def run(arguments: argparse.Namespace) -> int:
    """Run the program, then serve; a failing SystemExit of the program goes through.

    Raises:
        LaunchError: wrong options, or the port is taken.
    """
    expected = expected_of(arguments)
    with Server(arguments.port) as server:
        show = partial(_serve, server=server, expected=expected)
        return queries.looked_at(arguments, lambda record: record, show)


def _serve(querier: Querier, server: Server, expected: Any) -> None:
    """Serve all that was recorded until Ctrl-C."""
    if not querier.answers:
        print(f"nki-dist view: {queries.nothing(querier)}")
        return
    for n, (kernel, _, record) in enumerate(querier.answers, 1):
        each = None if expected is None else of_rank(record, {0: expected}, 0)
        server.pages[str(n)] = Live(record, each)
        print(f"{kernel}: {server.address}/{n}/", flush=True)
    print("Ctrl-C ends it", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()


class Server(ThreadingHTTPServer):
    """Serves pages of records, below an address that nobody can guess.

    Attributes:
        pages: by what follows the address.

    Raises:
        LaunchError: the port can't be had.
    """

    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.pages: dict[str, Live] = {}
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except (OSError, OverflowError) as error:
            raise refused(f"--port {port} can't be had: {error}") from None
        self.address = f"http://127.0.0.1:{self.server_address[1]}/{self.token}"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        _, token, number, name = ([*where.path.split("/"), "", "", "", ""])[:4]
        allowed = hmac.compare_digest(token.encode(), self.server.token.encode())
        live = self.server.pages.get(number) if allowed else None
        if live is None:
            self._answer(404, b"not here", "text/plain")
            return
        try:
            query = {key: int(found[-1]) for key, found in parse_qs(where.query).items()}
            if name == "values":
                self._answer(200, live.values(query["step"]), "application/octet-stream")
            elif name == "origin":
                text = live.origin(query["step"], query["tensor"], query["element"])
                self._answer(200, text.encode(), "text/html; charset=utf-8")
            elif name == "":
                self._answer(200, live.page.encode(), "text/html; charset=utf-8")
            else:
                self._answer(404, b"not here", "text/plain")
        except (KeyError, ValueError, NkiError) as error:
            self._answer(400, str(error).encode(), "text/plain; charset=utf-8")

    def _answer(self, status: int, content: bytes, kind: str) -> None:
        with suppress(ConnectionError):  # the browser has gone on to another step, or closed
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")  # the address is a secret
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is told of requests: their addresses hold the token."""
