"""The comparison of pages with what their blocks print: what is stale, and what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.pages import (
    EXCERPT,
    FENCE,
    OUTPUT,
    PAGES,
    VARIES,
    Block,
    Told,
    blocks,
    missing,
    run,
    runnable,
    stale,
    write,
)


def block(*marks: str, text: str = "") -> Block:
    return Block(marks, text, (0, 0))


def test_blocks_may_need_packages() -> None:
    needy = block("python", "needs=numpy", "needs=not_a_package")
    assert runnable(needy) and missing(needy) == {"not_a_package"}
    assert not runnable(block("python", "no-run"))


PRINTED = (
    "add on trn2: 13.860 us simulated, as compiled\n  0  dma   12\n  1  dma    9\nran in 4 s\n"
)


@pytest.mark.parametrize(
    "excerpt",
    [
        "add on trn2: 18.252 us simulated, as compiled",  # another figure
        "add on trn2: 13.86",  # a figure that goes on
        "add on trn2: 13.860 us sim",  # a word that goes on
        "add on trn2:  13.860 us",  # another column
        "  1  dma    9\n  0  dma   12",  # another order
        "  0  dma   12\n  0  dma   12",  # printed once
    ],
)
def test_an_excerpt_is_stale(excerpt: str) -> None:
    assert stale(Told(block("text", "excerpt", text=excerpt), PRINTED))


@pytest.mark.parametrize(
    "excerpt", [PRINTED, "add on trn2: 13.860 us\n  1  dma    9", "  0  dma   12\nran in 4"]
)
def test_an_excerpt_has_beginnings_of_lines(excerpt: str) -> None:
    assert not stale(Told(block("text", "excerpt", text=excerpt), PRINTED))


def test_places_are_compared_without_their_folders() -> None:
    printed = "  in nl.load on core 0 at /tmp/made/block1/page.py:7 [code]\n"
    output = block("text", "output", text="  in nl.load on core 0 at page.py:7 [code]\n")
    assert not stale(Told(output, printed))
    assert stale(Told(output, printed.replace(":7", ":8")))


def test_figures_that_vary_are_left_out_where_the_page_says_so() -> None:
    assert not stale(Told(block(*VARIES, text="ran in 17.5 s\n"), PRINTED))
    assert stale(Told(block(*VARIES, text="ran for 4 s\n"), PRINTED))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_simulated_time_never_varies(page: Path) -> None:
    """It is reproducible to the cycle, so that no page may leave it out of the comparison."""
    varying = "".join(b.text for b in blocks(page) if b.marks == VARIES)
    assert not re.search(r"simulated|\d us\b|FLOPS|GB/s", varying)


# Pages whose times are compared by other tests, or are those of documents and of changes.
COMPARED = {
    "accuracy",
    "collectives_time",
    "real_kernels",
    "CHANGELOG",
}
QUOTED = {
    "limitations.md": ["6.2 us", "10.0 us"],  # of AWS's documents, which contradict each other
    "README.md": ["189.4 us"],  # tests/test_docs.py compares it
    "profiles.md": ["437 us"],  # in AWS's page of asynchronous execution
}


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem not in COMPARED], ids=lambda p: p.name)
def test_microseconds_are_said_in_outputs_only(page: Path) -> None:
    """In prose and tables nothing would notice that they are stale."""
    prose = FENCE.sub("", page.read_text())
    assert re.findall(r"\d[\d.,]*\s+(?:us|µs|microseconds)\b", prose) == QUOTED.get(page.name, [])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_block_carries_a_mark_that_nothing_reads(page: Path) -> None:
    """A misspelt mark would take a block out of the comparison."""
    told = {OUTPUT, EXCERPT, VARIES, ("text",), ("json",), ("sh", "recipe"), ()}
    for each in blocks(page):
        known = runnable(each) or each.marks in told or each.marks == ("python", "no-run")
        assert known or each.mark("file") or each.marks[0].startswith("{"), each.marks


def test_outputs_and_excerpts_are_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "A page.\n\n```python\nprint('simulated 13.860 us in all')\nprint('b', 1, 2)\n"
        "print('b', 3, 4)\nprint('rest')\n```\n\n"
        "```text excerpt\nsimulated 7.089 us\nb 3 9\n```\n\n```text output\nold\n```\nThe end.\n"
    )
    told, _ = run(page, tmp_path)
    assert all(map(stale, told)) and not write(page, told)
    again, _ = run(page, tmp_path / "again")
    assert not any(map(stale, again))
    assert [b.text for b in blocks(page)][1:] == [
        "simulated 13.860 us\nb 3 4\n",
        "simulated 13.860 us in all\nb 1 2\nb 3 4\nrest\n",
    ]
    assert page.read_text().endswith("```\nThe end.\n")


def test_what_nothing_printed_resembles_is_left_for_a_hand(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    before = "```python\nprint('a 2')\n```\n```text excerpt\na 1\nb 1\n```\n"
    page.write_text(before)
    told, _ = run(page, tmp_path)
    (problem,) = write(page, told)
    assert problem.endswith("page.md: b 1") and page.read_text() == before
