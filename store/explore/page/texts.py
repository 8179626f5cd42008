"""Texts of a lake as pages show them: escaped, cut, and highlighted where they are code."""

from __future__ import annotations

import difflib
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from store.code.languages import find_fence
from store.code.lexer import make_lexer
from store.commandline.escape import escape_text

if TYPE_CHECKING:
    from markupsafe import Markup

    from store.explore.page.model import Row

TIMES = "\N{MULTIPLICATION SIGN}"
NOTHING = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"
CODE_LINES = 400
LINE_CHARACTERS = 240
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|!~$&@:]|(?<=\bwww)\.", re.IGNORECASE)
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", ":": "&#58;", ".": "&#46;"}


def read_number(text: str | None) -> int | None:
    """Return the whole number that a reader has typed, or None."""
    return int(text) if text and text.isdecimal() and len(text) < 18 else None


def cut_code(text: str) -> str:
    """Return code cut to the number and length of lines that a page shows, with notes.

    >>> cut_code("x = 1\\r\\n" + "y" * 300).splitlines()[1][236:]
    'yyyy … (60 characters left out)'
    """
    lines = text[: CODE_LINES * LINE_CHARACTERS * 4].replace("\r\n", "\n").split("\n")
    shown = [_cut(escape_text(line)) for line in lines[:CODE_LINES]]
    left = text.count("\n") + 1 - len(shown)
    if left > 0:
        shown.append(f"… ({left} lines left out)")
    return "\n".join(shown)


def make_label(text: str, most: int = 40) -> str:
    """Return a short text of one line, such as for the label of a chart.

    >>> make_label("a" * 60) == "a" * 39 + "…", make_label("two\\nlines")
    (True, 'two lines')
    """
    one = " ".join(escape_text(text[: most * 4]).split())
    return one if len(one) <= most else one[: most - 1] + "…"


def escape_markdown(text: str) -> str:
    """Return a text of one line that Markdown shows unchanged, in a paragraph or a table cell.

    >>> escape_markdown("a|b <script> [x](http://y) @me")
    'a\\\\|b &lt;script&gt; \\\\[x\\\\](http&#58;//y) &#64;me'
    >>> escape_markdown("two\\xa0words")  # a space of any kind is a space
    'two words'
    """
    one = escape_text(" ".join(text.split()))
    return _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), one)


def fence(text: str, language: str = "") -> str:
    """Return a fenced block of Markdown, with a fence longer than any run of backticks inside.

    >>> fence("```", "sql").splitlines()
    ['````sql', '```', '````']
    """
    longest = max(map(len, re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text}\n{ticks}"


def _cut(line: str) -> str:
    left = len(line) - LINE_CHARACTERS
    return line if left <= 0 else f"{line[:LINE_CHARACTERS]} … ({left} characters left out)"


_LIGHT, _DARK = "default", "github-dark"
_CONTEXT = 4
"""Equal lines that a diff shows around a change."""


class DiffLine(NamedTuple):
    """One line of a diff with its numbers in both texts; None where a text does not have it."""

    change: Literal["same", "added", "removed", "skipped"]
    old: int | None
    new: int | None
    html: Markup


def highlight(code: str, language: str) -> Markup:
    """Return code as HTML with highlighted syntax; its text is escaped."""
    from markupsafe import Markup
    from pygments.formatters import HtmlFormatter

    out = io.StringIO()
    HtmlFormatter(nowrap=True).format(make_lexer(language).get_tokens(code), out)
    return Markup(out.getvalue())


def highlight_lines(code: str, language: str) -> list[Markup]:
    """Return the lines of code as HTML, each complete in itself.

    >>> highlight_lines("# <a>\\n1", "python")[0]
    Markup('<span class="c1"># &lt;a&gt;</span>')
    """
    from markupsafe import Markup

    # The formatter closes and opens its spans at every end of line.
    return [Markup(line) for line in highlight(code, language).split("\n")]


def read_code_style() -> str:
    """Return a style sheet with the colors of highlighted code, light and dark."""
    from pygments.formatters import HtmlFormatter

    def rules(style: str) -> str:
        lines = HtmlFormatter(style=style, nobackground=True).get_style_defs(".code").splitlines()
        return "\n".join(line for line in lines if line.startswith(".code ."))

    return f"{rules(_LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{rules(_DARK)}\n}}\n"


_MOST_DIFF_LINES = 600


def show_code(rows: Sequence[Row], marks: Sequence[Row]) -> list[Row]:
    """Return files with their highlighted lines; findings mark lines of the first file.

    The anchor of a file begins the names of its lines in addresses.
    """
    by_line: dict[int, list[Row]] = {}
    for mark in marks:
        by_line.setdefault(mark["line"], []).append(mark)
    return [
        {
            "path": row["path"],
            "anchor": f"F{at}L" if at else "L",
            "lines": [
                {"number": number, "html": html, "marks": [] if at else by_line.get(number, [])}
                for number, html in enumerate(_highlight(row["code"], row["path"]), start=1)
            ],
        }
        for at, row in enumerate(rows)
    ]


def show_diff(rows: Sequence[Row]) -> Row:
    """Return the changes from a row's `before` to its `code`, with some equal lines around them."""
    from markupsafe import Markup

    row = rows[0]
    old, new = _highlight(row["before"], row["path"]), _highlight(row["code"], row["path"])
    lines: list[DiffLine] = []
    end_of_last = 0
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) * len(new) > 10**7)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        skipped = group[0][1] - end_of_last
        if skipped:
            text = Markup(f"{skipped} equal line{'s' * (skipped != 1)}")
            lines.append(DiffLine("skipped", None, None, text))
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                for at in range(old_end - old_start):
                    numbers = (old_start + at + 1, new_start + at + 1)
                    lines.append(DiffLine("same", *numbers, old[old_start + at]))
                continue
            lines += [
                DiffLine("removed", at + 1, None, old[at]) for at in range(old_start, old_end)
            ]
            lines += [DiffLine("added", None, at + 1, new[at]) for at in range(new_start, new_end)]
        end_of_last = group[-1][2]
    return {
        "lines": lines[:_MOST_DIFF_LINES],
        "added": sum(line.change == "added" for line in lines),
        "removed": sum(line.change == "removed" for line in lines),
        "left_out": max(0, len(lines) - _MOST_DIFF_LINES),
    }


def _highlight(code: str, path: str) -> list[Markup]:
    return highlight_lines(cut_code(code.rstrip("\n")), find_fence(path) or "python")


_MOST_CHARACTERS = 60_000


@dataclass(frozen=True, kw_only=True)
class Message:
    """One message of a prompt, or an answer."""

    role: str
    text: str
    """Escaped."""
    left_out: int
    """Number of characters that are not shown."""


def show_messages(rows: Sequence[Row]) -> list[Message]:
    """Return the messages and the answers of rows with the columns messages and body."""
    shown: list[Message] = []
    for row in rows:
        if row.get("messages"):
            shown += [cut_message(role, text) for role, text in read_messages(row["messages"])]
        if row.get("body"):
            shown.append(cut_message("answer", row["body"]))
    return shown


def read_messages(messages: str) -> list[tuple[str, str]]:
    """Return role and text of each message; a text that is no list of messages is one message."""
    try:
        read: Any = json.loads(messages)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, list):
        return [("prompt", messages)]
    found: list[tuple[str, str]] = []
    for message in cast("list[Any]", read):
        given = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        content = given.get("content")
        text = content if isinstance(content, str) else json.dumps(content or message)
        found.append((str(given.get("role", "message")), text))
    return found


def cut_message(role: str, text: str, most: int = _MOST_CHARACTERS) -> Message:
    """Return a text as a message, cut where it is long."""
    return Message(
        role=role[:40],
        text=escape_text(text[:most].replace("\r\n", "\n")),
        left_out=max(0, len(text) - most),
    )


_MOST_OF_STEP = 4_000
_MOST_OF_PAGE = 120_000
"""Characters of all texts of a page."""


def show_steps(rows: Sequence[Row]) -> list[Row]:
    """Return steps with their reasoning, content and calls cut to what a page shows."""
    left = _MOST_OF_PAGE

    def cut(text: str | None) -> Message | None:
        """Cut a text, later ones of the page more if the earlier ones were long."""
        nonlocal left
        if not text:
            return None
        message = cut_message("", text, min(_MOST_OF_STEP, max(left, 200)))
        left -= len(message.text)
        return message

    def format_arguments(text: str | None) -> str | None:
        """Return a line for each name; other texts stay as they are."""
        try:
            read: Any = json.loads(text or "")
        except (ValueError, RecursionError):
            return text
        if not isinstance(read, dict):
            return text
        return "\n".join(
            f"{name}: {value if isinstance(value, str) else json.dumps(value)}"
            for name, value in cast("dict[str, Any]", read).items()
        )

    return [
        row
        | {
            "reasoning": cut(row["reasoning"]),
            "content": cut(row["content"]),
            "calls": [
                call
                | {
                    "arguments": cut(format_arguments(call["arguments"])),
                    "result": cut(call["result"]),
                }
                for call in row["calls"] or []
            ],
        }
        for row in rows
    ]


TOKEN_COLORS = ("log-probability", "advantage", "gap")
"""What tokens may be colored by; a gap is between sampler and trainer."""
_TOKEN_LEVELS = {
    "log-probability": (0.1, 1.0, 2.0, 4.0),
    "advantage": (0.0, 0.25, 1.0, 2.0),
    "gap": (0.01, 0.05, 0.2, 1.0),
}
"""From which size each of four shades begins."""


def show_tokens(by: str, rows: Sequence[Row]) -> Row:
    """Return answers as colored pieces of text, one for each token, and a legend of the colors."""
    levels = _TOKEN_LEVELS[by]

    def shade(value: float | None) -> str:
        level = sum(abs(value) > limit for limit in levels) if value is not None else 0
        kind = "plus" if by == "advantage" and (value or 0) > 0 else "minus"
        return f"{kind}{level}" if level else ""

    answers: list[Row] = []
    for row in rows:
        ends, body = row["ends"], row["body"] or ""
        nothing = [None] * len(row["ids"])
        sampled, trained, mask = (
            row[name] or nothing for name in ("sampler_logprobs", "trainer_logprobs", "loss_mask")
        )
        advantages = row["advantages"] or [row["advantage"]] * len(nothing)
        pieces: list[Row] = []
        begin = 0
        for at, token in enumerate(row["ids"]):
            end = begin if ends is None else ends[at]
            sampler, trainer = sampled[at], trained[at]
            figures: dict[str, float | None] = {
                "log-probability": trainer if sampler is None else sampler,
                "gap": None if sampler is None or trainer is None else trainer - sampler,
                "advantage": advantages[at],
            }
            is_given = mask[at] is False
            told = [f"{name} {one:.3g}" for name, one in figures.items() if one is not None]
            told = [f"id {token}", *(["not in the loss"] if is_given else told)]
            pieces.append(
                {
                    "text": escape_text(body[begin:end]) or f"\u27e8{token}\u27e9",
                    "tone": "given" if is_given else shade(figures[by]),
                    "title": ", ".join(told),
                }
            )
            begin = end
        answers.append(
            row
            | {
                "pieces": pieces,
                "body_alone": escape_text(body) if ends is None else None,
                "left_out": row["length"] - len(pieces),
            }
        )
    words = {"log-probability": "below \u2212", "advantage": "below \u2212", "gap": "beyond \u00b1"}
    legend = [(f"minus{at}", f"{words[by]}{limit:g}") for at, limit in enumerate(levels, start=1)]
    if by == "advantage":
        legend += [(f"plus{at}", f"above {limit:g}") for at, limit in enumerate(levels, start=1)]
    return {"answers": answers, "legend": legend, "by": by}
