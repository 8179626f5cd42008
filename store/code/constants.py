"""Named numbers in the code of a kernel: tile sizes, vector widths, warps, launch bounds."""

from __future__ import annotations

import re

_NAME = r"[A-Z][A-Z0-9_]*|num_warps|num_stages"
_ASSIGNED = re.compile(
    rf"\b(?P<name>{_NAME})\b(?:\s*:\s*(?:tl\.constexpr|int))?\s*=\s*(?P<value>\d{{1,9}})\b(?!\.)"
    rf"|^[ \t]*#[ \t]*define[ \t]+(?P<macro>{_NAME})[ \t]+(?P<number>\d{{1,9}})[ \t]*$"
    rf"|\b__launch_bounds__\(\s*(?P<bounds>\d{{1,9}})",
    re.MULTILINE,
)


def read_constants(text: str) -> dict[str, int]:
    r"""Return the numbers that code gives to upper-case names and launch options, by name.

    The first value of a name counts. This reads text and evaluates nothing.

    >>> read_constants("#define VEC 4\nk[grid](x, BLOCK=256, num_warps=8)")
    {'VEC': 4, 'BLOCK': 256, 'num_warps': 8}
    >>> read_constants("if (N == 4) __launch_bounds__(128) SCALE = 1.5")
    {'__launch_bounds__': 128}
    """
    found: dict[str, int] = {}
    for match in _ASSIGNED.finditer(text):
        name = match["name"] or match["macro"] or "__launch_bounds__"
        found.setdefault(name, int(match["value"] or match["number"] or match["bounds"]))
    return found
