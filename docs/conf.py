"""The site: `make site` builds it into build/site, and a warning ends the build.

The pages are Markdown and read well without it: their links to sources, which the site does not
have, become the sources' names there.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

import torch_xla

project = "torch_xla"
author = copyright = "The contributors of torch_xla"
version = release = torch_xla.__version__
html_title = f"torch_xla {release}"
html_theme = "furo"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["conf.py"]
myst_heading_anchors = 3
# Blocks without a language are plain text, not Python.
highlight_language = "text"

autodoc_default_options = {"members": True}
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_preserve_defaults = True
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Otherwise what stands before a colon there is taken for a type.
napoleon_custom_sections = ["Returns", "Yields"]

_DOCS = pathlib.Path(__file__).resolve().parent
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)]*)?\)")


def _name_sources(_app: Any, docname: str, source: list[str]) -> None:
    """Links that lead out of the pages become what they are called."""
    folder = (_DOCS / docname).parent

    def shown(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_file() and target.is_relative_to(_DOCS):
            return link[0]
        return link[1] if link[1].startswith("`") else f"`{link[1]}`"

    source[0] = _LINK.sub(shown, source[0])


def _list_the_rest(app: Any, docname: str, source: list[str]) -> None:
    """Pages that the index does not place come behind those that it does."""
    if docname != "index":
        return
    placed = {"index", *source[0].split()}
    rest = sorted(app.env.found_docs - placed)
    if rest:
        lines = ["", "```{toctree}", ":caption: More", ":hidden:", "", *rest, "```", ""]
        source[0] += "\n".join(lines)


def _quote_code(
    _app: Any, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """In docstrings code stands between single quotes of its kind, as in Markdown."""
    lines[:] = re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``\\ ", "\n".join(lines)).split("\n")


def setup(app: Any) -> None:
    app.connect("source-read", _name_sources)
    app.connect("source-read", _list_the_rest)
    app.connect("autodoc-process-docstring", _quote_code, priority=100)  # before napoleon
