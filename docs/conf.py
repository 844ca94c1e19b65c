"""How Sphinx builds the site: `make docs`.

The source directory is the repository's root, so that README, CONTRIBUTING and the pages of `docs`
are built where they lie and link to each other as they do everywhere else. What autodoc can't know
is added here: the declared facts of an instruction, and links to files that are no pages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import api_names
import reference
from sphinx.addnodes import pending_xref

import nki_dist

project = "nki_dist"
author = "the nki_dist authors"
release = version = nki_dist.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxarg.ext",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/**"]
exclude_patterns = [".*", "build", "dist", "**/__pycache__", "docs/*.py", "docs/examples"]

html_theme = "furo"
html_title = f"nki_dist {release}"
html_copy_source = False
smartquotes_action = "qe"  # not dashes: options of commands begin with them

# What programs print isn't for copying.
copybutton_selector = "div.highlight-python pre, div.highlight-default pre, div.highlight-bash pre"

myst_heading_anchors = 3
myst_enable_extensions = ["html_image"]  # <img width=...>, as GitHub takes it

# Docstrings are Google style, with `code` in single backticks as in Markdown.
default_role = "literal"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
add_module_names = False

# Types of other packages, and of ours that users don't name, have no page to link to.
nitpick_ignore_regex = [
    ("py:class", r"(collections|os|numpy|nki_dist|pathlib)\..*|tuple\[~typing.Any")
]
# Names of unions, which are explained where they are used.
nitpick_ignore = [("py:class", "Policy"), ("py:class", "Data")]


def unlink_folders(app: Any, doctree: Any) -> None:
    """A link to a folder of the repository, which is no page, stays a name."""
    page = Path(app.srcdir, app.env.docname).parent
    for node in list(doctree.findall(pending_xref)):
        if node.get("reftype") == "myst" and (page / node["reftarget"]).is_dir():
            node.replace_self(node.children)


def prepare(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Two habits of our docstrings that napoleon reads otherwise.

    It takes what a property's first line has before a colon for its type, and the first of several
    attributes described together (`min, max: the range`) for the type of the second.
    """
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment
    if "Attributes:" in lines:
        start = lines.index("Attributes:") + 1
        text = SEVERAL.sub(one_each, "\n".join(lines[start:]))
        lines[start:] = text.split("\n")


SEVERAL = re.compile(r"^    ((?:\w+, )+\w+)(:.*(?:\n {5,}.*)*)", re.MULTILINE)


def one_each(found: re.Match[str]) -> str:
    return "\n".join(f"    {name}{found[2]}" for name in found[1].split(", "))


def setup(app: Any) -> None:
    app.connect("source-read", api_names.expand)
    app.connect("doctree-read", unlink_folders)
    app.connect("autodoc-process-docstring", prepare, priority=400)  # napoleon has 500
    app.connect("autodoc-process-docstring", reference.add_declaration)
