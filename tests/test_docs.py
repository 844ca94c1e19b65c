"""README, CONTRIBUTING and docs say what is true.

Their blocks are executed, and what they say of it is compared (`tests/pages.py` has the marks, and
writes outputs anew). Commands, environment variables and links that a page mentions must exist.
"""

from __future__ import annotations

import builtins
import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import nki_dist
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.accuracy import rows
from nki_dist import arch, kernels, testing
from nki_dist.cli import parser
from nki_dist.launcher.session import session
from nki_dist.runtime import settings
from tests.pages import (
    FENCE,
    PAGES,
    ROOT,
    TOP,
    blocks,
    run,
    runnable,
    stale,
    write,
)
from tests.test_layering import LAYERS

sys.path.insert(0, str(ROOT / "docs"))

from api_names import directives

LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


SLOW = ("mcp.md", "worlds.md")  # programs in processes of their own
RUN = [
    pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else (), id=page.name)
    for page in PAGES
    if any(map(runnable, blocks(page)))
]


@pytest.fixture(scope="module", autouse=True)
def warm_worlds() -> Iterator[None]:
    """All pages use one Ray session; its actors end with this module."""
    yield
    session().close()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to run in; aliases that a page installs are taken back."""
    monkeypatch.chdir(tmp_path)
    before, builtin = set(sys.modules), set(vars(builtins))
    yield tmp_path
    for name in set(vars(builtins)) - builtin:
        delattr(builtins, name)
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("nki", "neuronxcc"):
            del sys.modules[name]


@pytest.mark.parametrize("page", RUN)
def test_blocks_run_and_print_what_the_page_says(
    page: Path, scene: Path, request: pytest.FixtureRequest
) -> None:
    told, absent = run(page, scene)
    if request.config.getoption("--write-pages"):
        problems = write(page, told)
    else:
        problems = [difference for difference in map(stale, told) if difference]
    if problems:
        pytest.fail("\n".join(problems))
    if absent:
        pytest.skip(f"the rest is fine; some blocks need {', '.join(sorted(absent))}")


RECIPES = [page for page in PAGES if any(b.marks == ("sh", "recipe") for b in blocks(page))]


def test_recipes_are_found() -> None:
    assert {"instruction", "link_pass", "algorithm", "check"} <= {page.stem for page in RECIPES}


@pytest.mark.slow
@pytest.mark.parametrize("page", RECIPES, ids=lambda p: p.stem)
def test_a_recipe_works(page: Path, tmp_path: Path) -> None:
    """Followed to the letter in a copy of the repository: files, changes, then the commands."""
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("bench", "docs", "examples", "nki_dist", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    for file in (*TOP, ROOT / "Makefile", ROOT / "pyproject.toml"):
        shutil.copy(file, tmp_path)
    for block in blocks(page):
        for name in block.mark("file"):
            if block.marks[0] == "diff":
                change(tmp_path / name, block.text)
            else:
                assert not (tmp_path / name).exists(), f"{name} is there already"
                (tmp_path / name).write_text(block.text)
        if block.marks == ("sh", "recipe"):
            follow(block.text, tmp_path)


def follow(commands: str, folder: Path) -> None:
    """Carry out shell commands, none of which may fail."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    options = "-p no:cacheprovider"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": options}
    shell = ["sh", "-e", "-c", commands]
    done = subprocess.run(
        shell, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def change(file: Path, diff: str) -> None:
    """Apply the hunks of a diff, between which stand lines of `@@`.

    `...` stands for whatever a line has there, so that a hunk names only what others leave alone.
    """
    content = file.read_text()
    for hunk in re.split(r"^@@\n", diff, flags=re.MULTILINE):
        lines = [(line[:1], line[1:]) for line in hunk.splitlines(keepends=True)]
        old, new = ("".join(t for kind, t in lines if kind != but).split("...") for but in "+-")
        assert len(old) == len(new), f"fewer or more `...` after the change than before:\n{hunk}"
        pattern = "^" + "(.*)".join(map(re.escape, old))
        found = list(re.finditer(pattern, content, re.MULTILINE))
        assert len(found) == 1, (
            f"this is {len(found)} times in {file.name}, not once; let the recipe's hunk stand "
            "beside a line that additions leave as it is, with `...` for the rest of one that "
            f"they change:\n{'...'.join(old)}"
        )
        now = "".join(text for pair in zip(new, [*found[0].groups(), ""]) for text in pair)
        content = content[: found[0].start()] + now + content[found[0].end() :]
    file.write_text(content)


def test_a_hunk_leaves_what_it_does_not_name(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    for others in ("a", "a, b"):
        file.write_text(f"head\n| x | {others}, z | more |\nend\n")
        change(file, "-| x | ..., z |...\n+| x | ..., y, z |...\n@@\n head\n+new\n")
        assert file.read_text() == f"head\nnew\n| x | {others}, y, z | more |\nend\n"
    file.write_text("head\nhead\n")
    for of in ("gone", "head"):
        with pytest.raises(AssertionError, match=r"times in page.md, not once"):
            change(file, f" {of}\n+new\n")


def commands() -> set[str]:
    """Subcommands of `nki-dist`."""
    (choices,) = [a.choices for a in parser()._actions if isinstance(a.choices, dict)]
    return set(choices)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_resolve(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    targets = [t for t in LINK.findall(prose) if "://" not in t]
    missing = [t for t in targets if not (page.parent / t.split("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_and_files_exist(page: Path) -> None:
    content = page.read_text()
    made = set(re.findall(r"(?:^ {4}|`)make (\w+)", content, re.MULTILINE))
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made <= set(targets)
    called = set(re.findall(r"(?:^ {4}|`)nki-dist ([\w-]*\w)", content, re.MULTILINE))
    assert called <= commands() | set(re.findall(r"file=nki_dist/cli/(\w+)\.py", content))
    for name in re.findall(r"\b(?:examples|tests|nki_dist|bench)/[\w/]+\.py", content):
        if f"file={name}" not in content:
            assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_environment_variables_are_known_to_the_code(page: Path) -> None:
    source = "".join(f.read_text() for f in (ROOT / "nki_dist").rglob("*.py"))
    named = set(re.findall(r"\b(?:NEURON|NKI)_[A-Z_]+\b", page.read_text()))
    source += (ROOT / "Makefile").read_text()  # variables that make takes
    assert not [n for n in named if f'"{n}"' not in source and f"$({n})" not in source]


def test_architecture_has_every_room_and_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rooms = {p.parent.name for p in (ROOT / "nki_dist").glob("*/__init__.py")}
    assert rooms <= set(re.findall(r"\w+", page))
    named = set(re.findall(r"`([a-z_]+/[\w/]+)(?:`|\.py)", page)) - {"tests"}
    places = [ROOT, ROOT / "nki_dist"]
    lost = [n for n in named if not any(p.exists() for at in places for p in at.glob(f"{n}*"))]
    assert len(named) > 40 and not lost


def test_architecture_has_every_pass_of_linking_in_their_order() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page.split("| pass | what it does | file |")[1].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == nki_dist.link_passes()


def test_the_layers_in_contributing_are_the_ones_that_are_checked() -> None:
    listed = (
        (ROOT / "CONTRIBUTING.md").read_text().split("From the bottom:")[1].split("Packages")[0]
    )
    packages = [set(line.split()) for line in listed.splitlines() if line.strip()]
    folders = {p.parent.name for p in (ROOT / "nki_dist").glob("*/__init__.py")}
    folders |= {"errors", "forks", "ranges", "release", "checks", "tricks"}
    assert packages == [set(layer) & folders for layer in LAYERS]


def test_the_readme_has_the_figures_of_the_page_of_accuracy() -> None:
    """Never better than they are there."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    accuracy = (ROOT / "docs/accuracy.md").read_text()
    rows, median = re.search(r"\*\*first set\*\* \| (\d+) \| ([\d.]+) %", accuracy).groups()
    more, other = re.search(r"\*\*public set\*\* \| (\d+) \| ([\d.]+) %", accuracy).groups()
    (fitted,) = re.findall(r"figures fitted \|[^|]*\| (\d+) \|", accuracy)
    (left_out,) = re.findall(r"median error of families left out \|[^|]*\| ([\d.]+) %", accuracy)
    assert f"median error {median} %" in readme
    assert (
        f"that of {rows} kernel times that others published; of {more} more it is {other} %"
        in readme
    )
    assert f"{fitted} figures are fitted" in readme
    assert f"the median error is {round(float(left_out))} %" in readme
    measured = (ROOT / "docs/collectives_time.md").read_text()
    (off,) = re.findall(r"with all of them \| (\d+)%", measured)
    assert f"costs are partly assumed, {off} % off in the median" in readme


def test_times_of_published_kernels_are_the_stored_ones() -> None:
    """`bench.accuracy` stores them, and other tests simulate some of them again."""
    times = rows.read_results(rows.DATA / "simulated.jsonl")
    known = [(r.measured_us, times[r.id].device_us) for r in rows.all_rows() if r.id in times]
    stored = {(round(measured), round(simulated)) for measured, simulated in known}
    page = (ROOT / "docs/real_kernels.md").read_text().split("### Numbers beside others'")[1]
    told = re.findall(r"^\|.*\| trn\d \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(told) == 10
    assert {(int(published), int(simulated)) for published, simulated in told} <= stored


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    for folder in ("docs", "examples/spmd"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module("pictures")


def test_pictures_show_the_present_times(pictures: ModuleType) -> None:
    """`python docs/pictures.py` takes them again."""
    told = f"{pictures.demo().total_us:.1f}"
    assert f"{told} us of simulated time" in (ROOT / "README.md").read_text()
    for name in ("timeline", "report"):
        assert f"{pictures.shown(ROOT / 'docs' / f'{name}.png'):.1f}" == told
    faults = (ROOT / "docs/profiles.md").read_text()
    slow, fast = (
        float(t) for t in re.findall(r"^linear on .*: ([\d.]+) us simulated", faults, re.M)
    )
    assert pictures.shown(ROOT / "docs/fault_slow.png") == round(slow, 1)
    assert pictures.shown(ROOT / "docs/fault_fast.png") == fast


def test_every_picture_is_on_a_page() -> None:
    shown = "".join(page.read_text() for page in PAGES)
    drawn = [p for kind in ("png", "svg") for p in (ROOT / "docs").glob(f"*.{kind}")]
    assert drawn and not [p.name for p in drawn if p.name not in shown]


def table_of(page: str, begins: str | tuple[str, ...]) -> dict[str, list[str]]:
    """The rows of a page's tables that begin with code that `begins` so, by it."""
    found = {}
    for line in (ROOT / "docs" / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        name = cells[0].strip("`")
        if line.startswith("| `") and name.startswith(begins):
            assert name not in found, f"{name} is there twice"
            found[name] = cells[1:]
    return found


VARIABLES = ("NKI_", "NEURON_", "RAY_")
# Ray's own, which are passed on or looked at and aren't for users.
UNTOLD = {"RAY_RAYLET_PID", "RAY_USE_TLS"}


def test_the_page_of_the_environment_has_every_variable_that_is_read():
    source = "".join(f.read_text() for f in (ROOT / "nki_dist").rglob("*.py"))
    read = set(re.findall(r'"((?:NKI|NEURON|RAY)_[A-Z_]+)"', source)) - UNTOLD
    table = table_of("cli.md", VARIABLES)
    assert set(table) == read
    assert all(len(cells) == 3 and all(cells) for cells in table.values())


def test_the_page_of_the_environment_has_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of("cli.md", VARIABLES)
    for name in table:
        monkeypatch.delenv(name, raising=False)
    told = {name: cells[1].strip("`") for name, cells in table.items()}
    assert told["NKI_DIST_HOST"] == settings.default_host()
    assert told["NKI_DIST_TRANSPORT"] == settings.default_transport()
    assert told["NKI_DIST_START_TIMEOUT"] == f"{settings.start_timeout():.0f}"
    assert (told["NKI_DIST_TIMEOUT"], settings.default_timeout()) == ("never", None)
    assert told["NEURON_LOGICAL_NC_CONFIG"] == str(settings.default_lnc(2))
    assert told["NKI_PRECISE_FP"] == str(int(settings.precise_fp()))
    assert told["NEURON_PLATFORM_TARGET_OVERRIDE"] == arch.from_environment().instance
    assert settings.default_check() == nki_dist.Checks()
    assert told["NKI_DIST_CHECK"] == "default"


def test_the_page_of_the_command_line_has_every_command() -> None:
    table = table_of("cli.md", "nki-dist ")
    assert {name.removeprefix("nki-dist ") for name in table} == commands()


def test_the_page_of_pytest_has_every_option_and_fixture() -> None:
    source = (ROOT / "nki_dist/pytest_plugin.py").read_text()
    options = {name.split()[0] for name in table_of("testing.md", "--nki-")}
    assert options == set(re.findall(r'"(--nki-[a-z]+)"', source))
    page = (ROOT / "docs/testing.md").read_text()
    fixtures = [*re.findall(r"@pytest.fixture\ndef (\w+)", source), "nki_ranks"]
    assert len(fixtures) > 1 and all(f"`{name}`" in page for name in fixtures)


PUBLIC = [nki_dist, nl, nisa, ncc, kernels, testing]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda m: m.__name__)
def test_the_reference_has_every_public_name(module: ModuleType) -> None:
    listed = referenced()[module.__name__]
    public = {n for n in module.__all__ if not isinstance(getattr(module, n), ModuleType)}
    # Errors have a page of their own, wherever else they are exported.
    errors = {n for n in public if getattr(nki_dist.errors, n, None) is getattr(module, n)}
    assert len(listed) == len(set(listed))
    missing, extra = public - errors - set(listed), set(listed) - public
    assert not (missing or extra), f"docs/api: add {sorted(missing)}, remove {sorted(extra)}"


def test_the_reference_has_every_error_and_no_strangers() -> None:
    values = vars(nki_dist.errors).items()
    family = {
        n for n, v in values if isinstance(v, type) and issubclass(v, nki_dist.errors.NkiError)
    }
    pages = referenced()
    assert family <= set(pages["nki_dist.errors"])
    for module, names in pages.items():
        found = importlib.import_module(module)
        assert not [name for name in names if not hasattr(found, name)]


def referenced() -> dict[str, list[str]]:
    """What the pages of `docs/api` let autodoc write, by module."""
    found: dict[str, list[str]] = {}
    directive = re.compile(
        r"^\.\. (currentmodule|auto(?!module)\w+):: ([\w.]+)(?:\(\))?$", re.MULTILINE
    )
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        module = ""
        for kind, name in directive.findall(directives(page.read_text())):
            if kind == "currentmodule":
                module = name
            else:
                found.setdefault(module, []).append(name)
    return found
