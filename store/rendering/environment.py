"""The template environment and the style sheets that the explorer and the report share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.commandline.escape import escape_terminal, escape_text
from store.rendering.text import make_label

if TYPE_CHECKING:
    from jinja2 import Environment


_SHARED = Path(__file__).parent / "templates"


def make_environment(folder: Path, *, autoescape: bool = True) -> Environment:
    """Return an environment with the templates of a folder and the shared ones.

    `drawing` marks our own SVG as safe; every value of a lake goes through autoescape. The filters
    `line`, `text` and `label` escape control characters of foreign text.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([folder, _SHARED]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    drawing: Any = Markup
    environment.globals["drawing"] = drawing
    environment.filters.update(line=escape_terminal, text=escape_text, label=make_label)
    return environment


def read_style(name: str) -> str:
    """Return the text of `NAME.css`."""
    return (Path(__file__).parent / "styles" / f"{name}.css").read_text("utf-8")
