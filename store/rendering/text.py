"""Escapes and shortens text of a lake for HTML, for labels of charts and for Markdown."""

from __future__ import annotations

import re

from store.commandline.escape import escape_text

TIMES = "\N{MULTIPLICATION SIGN}"
NOTHING = "\N{EN DASH}"
SPACE = "\N{NO-BREAK SPACE}"
CODE_LINES = 400
LINE_CHARACTERS = 240
_LABEL_CHARACTERS = 40
_MARKDOWN = re.compile(r"[\\`*_{}\[\]<>#|!~$&@:]|(?<=\bwww)\.", re.IGNORECASE)
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "@": "&#64;", ":": "&#58;", ".": "&#46;"}


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


def make_label(text: str) -> str:
    """Return a short text of one line for the label of a chart.

    >>> make_label("a" * 60) == "a" * 39 + "…", make_label("two\\nlines")
    (True, 'two lines')
    """
    one = " ".join(escape_text(text[: _LABEL_CHARACTERS * 4]).split())
    return one if len(one) <= _LABEL_CHARACTERS else one[: _LABEL_CHARACTERS - 1] + "…"


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
