"""Help pages of the four rooms: wrapped to the terminal, with examples and readable defaults."""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from cyclopts import App, Parameter

from store import describe_version

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

_SHARED = (
    "Results go to stdout, notes and errors to stderr. Exit codes: 0 done, 1 refused with a "
    "reason, 2 wrong usage, 3 rows broke a rule. Every command takes --lake, --catalog, --verbose "
    "and --quiet, before or after its name."
)
_HEADING = re.compile(r"^([ ]*Examples?):[ ]*$", re.MULTILINE)
_HIDDEN_DEFAULTS = ("False", "None", "()", "[]", '""')


class HelpFormatter:
    """Prints help pages: paragraphs are wrapped, indented lines (examples) stay as they are."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one panel of commands or parameters."""
        from cyclopts.help import DefaultFormatter

        panel = panel.copy(entries=[_readable(entry) for entry in panel.entries])
        DefaultFormatter()(console, options, panel)

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print the usage line."""
        from cyclopts.help import DefaultFormatter

        DefaultFormatter().render_usage(console, options, usage)

    def render_description(self, console: Console, options: ConsoleOptions, text: Any) -> None:
        """Print the description of a command."""
        from rich.text import Text

        for line in _join_paragraphs(_read_plain_text(text)):
            # An example is one command line, which must stay whole when it is copied.
            console.print(Text(line), soft_wrap=line.startswith(" "))
        console.print()


class CommandApp(App):
    """A cyclopts app with the help pages and settings that the four rooms share.

    cyclopts reads help texts with docstring_parser, which takes `Examples:` alone on a line for a
    section of a Google-style docstring. cyclopts does not print such sections, and where the
    section hides numpydoc's `Parameters`, options lose their help. `Examples::` has no such
    meaning, and `HelpFormatter` prints it as `Examples:`.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        """Take the arguments of `cyclopts.App`."""
        shared: dict[str, Any] = {
            "help_format": "plaintext",
            "help_formatter": HelpFormatter(),
            # No --empty-NAME options.
            "default_parameter": Parameter(negative_iterable=()),
            # `members.run` reports interrupts.
            "suppress_keyboard_interrupt": False,
        }
        super().__init__(*arguments, **(shared | settings))

    @property
    def help(self) -> str:
        """Help text with headings of examples that cyclopts prints."""
        return _mark_examples(super().help)

    @help.setter
    def help(self, value: str | None) -> None:
        self._help = value

    def default(self, obj: Any = None, **settings: Any) -> Any:
        """Register the function of a command; see `cyclopts.App.default`."""
        if isinstance(obj, FunctionType) and obj.__doc__:
            obj.__doc__ = _mark_examples(obj.__doc__)
        return super().default(obj, **settings)


def make_room_app(name: str, about: str, examples: Sequence[str]) -> CommandApp:
    """Return the app of a room: its help has the text, what all rooms share, and the examples."""
    listed = "\n".join(f"  {example}" for example in examples)
    return CommandApp(
        name=name,
        help=f"{about.strip()}\n\n{_SHARED}\n\nExamples:\n{listed}",
        version_flags=["--version"],
        version=describe_version,
    )


def _mark_examples(text: str) -> str:
    return _HEADING.sub(r"\1::", text)


def _read_plain_text(text: Any) -> str:
    """Return the text of a help text that cyclopts has made renderable."""
    return str(getattr(text, "primary_renderable", text) or "")


def _join_paragraphs(text: str) -> list[str]:
    """Return one line for each paragraph, list item and indented line of a text.

    >>> _join_paragraphs("One\\ntwo.\\n\\nExamples::\\n  store log\\n  store check")
    ['One two.', '', 'Examples:', '  store log', '  store check']
    """
    lines: list[str] = []
    for line in text.strip("\n").split("\n"):
        before = lines[-1] if lines else ""
        ends = not before or before.startswith(" ") or before.endswith("::")
        if ends or not line or line.startswith((" ", "- ")):
            lines.append(line.rstrip())
        else:
            lines[-1] = f"{before} {line.strip()}"
    return [re.sub("::$", ":", line) for line in lines]


def _readable(entry: HelpEntry) -> HelpEntry:
    text = " ".join(_read_plain_text(entry.description).split())
    return entry.copy(description=text, default=_default(entry.default))


def _default(shown: str | None) -> str | None:
    """Return how a default is printed; None where nothing is to be said.

    >>> _default("('a', 'b')"), _default("()"), _default("False"), _default("2.5")
    ('a b', None, None, '2.5')
    """
    if shown is None or shown in _HIDDEN_DEFAULTS:
        return None
    if not shown.startswith(("(", "[")):
        return shown
    try:
        return " ".join(map(str, literal_eval(shown)))
    except (ValueError, SyntaxError):
        return shown
