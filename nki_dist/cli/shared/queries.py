"""What `nki-dist record`, `view` and `drift` share: which launches, and how answers are shown."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from nki_dist.cli import run as program
from nki_dist.cli.shared.command import refused
from nki_dist.cli.shared.files import check_writable, writing
from nki_dist.cli.shared.observed import run_observed
from nki_dist.errors import NkiError
from nki_dist.insight.record import Record
from nki_dist.launcher.queries import Querier


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that choose launches and how answers are shown, and those of a program."""
    parser.add_argument("--json", action="store_true", help="print the answers as JSON")
    parser.add_argument("--html", metavar="FILE", help="also write the answers as a page")
    add_launches(parser)


def add_launches(parser: argparse.ArgumentParser) -> None:
    """The options that choose launches, and those of a program."""
    parser.set_defaults(json=False)
    parser.add_argument("--kernel", metavar="NAME", help="only launches of this kernel")
    parser.add_argument(
        "--launch",
        default="1",
        metavar="N",
        help="which launch of each kernel, from 1 on, or all (default 1)",
    )
    program.add_options(parser)


def answer_queries(
    arguments: argparse.Namespace,
    ask: Callable[[Record], Sequence[Any]],
    data: Callable[[Sequence[Any]], dict[str, Any]],
    page: Callable[[Sequence[Any]], str] | None = None,
) -> int:
    """The same as `looked_at`, where answers are shown as the options say.

    Args:
        ask: gives answers that can be printed.
        data: the answers to one launch as JSON.
        page: the answers to one launch as HTML, by default their texts.
    """
    check_writable("--html", arguments.html)
    return looked_at(arguments, ask, partial(_show, arguments=arguments, data=data, page=page))


def looked_at(
    arguments: argparse.Namespace, ask: Callable[[Record], Any], show: Callable[[Querier], None]
) -> int:
    """Run the program, ask its launches, show what they say; a failing SystemExit goes through.

    Returns:
        The program's exit status; 1 if no launch could be asked.

    Raises:
        LaunchError: wrong options.
    """
    querier = Querier(ask, arguments.kernel, _number(arguments.launch))
    try:
        status = run_observed(arguments, querier, partial(show, querier), arguments.json)
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
        status = 0  # a program may say so, too; whether answers are good is told afterwards
    answered = [a for _, _, a in querier.answers if not isinstance(a, NkiError)]
    return status or (0 if answered else 1)


def _number(text: str) -> int | None:
    """Which launch `--launch` means; None for all.

    Raises:
        LaunchError: none.
    """
    if text == "all":
        return None
    if not text.isdigit() or int(text) < 1:
        raise refused(f"--launch {text}; must be a positive number, or all")
    return int(text)


def _show(
    querier: Querier,
    arguments: argparse.Namespace,
    data: Callable[[Sequence[Any]], dict[str, Any]],
    page: Callable[[Sequence[Any]], str] | None,
) -> None:
    if arguments.json:
        found = [
            {"kernel": kernel, "launch": number, **_data(answers, data)}
            for kernel, number, answers in querier.answers
        ]
        print(json.dumps(found, indent=1))
    else:
        for kernel, number, answers in querier.answers:
            print(f"\n==== {kernel}, launch {number} of its kind")
            print(*([answers] if isinstance(answers, NkiError) else answers), sep="\n")
        if not querier.answers:
            print(f"\n{nothing(querier)}")
    if arguments.html is not None:  # which may fail, and answers have taken a while
        for name, text in _pages(querier, arguments, page):
            with writing("--html", name):
                Path(name).write_text(text, encoding="utf-8")


def nothing(querier: Querier) -> str:
    """What there was, where no launch was asked."""
    if not querier.launches:
        return "no kernel was launched"
    names = ", ".join(f"{name} ({count})" for name, count in querier.launches.items())
    return f"no launch was asked; the program launched {names}"


def _data(answers: Any, data: Callable[[Sequence[Any]], dict[str, Any]]) -> dict[str, Any]:
    return {"error": answers.to_dict()} if isinstance(answers, NkiError) else data(answers)


def _pages(
    querier: Querier,
    arguments: argparse.Namespace,
    page: Callable[[Sequence[Any]], str] | None,
) -> Iterator[tuple[str, str]]:
    """Files and what they hold: answers as texts, or what `page` makes of them. Of several launches
    that is FILE-1, FILE-2, ..., to which FILE leads."""
    pages = [page is not None and not isinstance(a, NkiError) for *_, a in querier.answers]
    first = Path(arguments.html)
    if page is not None and pages == [True]:
        yield str(first), page(querier.answers[0][2])
        return
    parts = []
    for n, (kernel, number, answers) in enumerate(querier.answers, 1):
        parts.append(f"<h2>{escape(kernel)}, launch {number} of its kind</h2>")
        if page is not None and pages[n - 1]:
            name = first.with_name(f"{first.stem}-{n}{first.suffix}")
            parts.append(f'<p><a href="{quote(name.name)}">what it read and wrote</a></p>')
            yield str(name), page(answers)
        shown = [answers] if isinstance(answers, NkiError) else answers
        parts += [f"<pre>{escape(str(answer))}</pre>" for answer in shown]
    if not parts:
        parts.append(f"<p>{escape(nothing(querier))}</p>")
    title = escape(arguments.program)
    head = f'<!doctype html><meta charset="utf-8"><title>{title}</title>'
    yield str(first), "\n".join([head, f"<h1>{title}</h1>", *parts, ""])
