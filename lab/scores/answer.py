r"""The text of an answer, and its parts up to the code.

    Fastest: Kernel 1
    BLOCK_R = 4
    BLOCK_C = 32
    WARPS = 4
    (a code block with the kernel)

An answer to a prompt without kernels has no first line. The parts are tokenized one by one, in
training and in scoring, so that the tokens of a setting do not depend on what follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_HEAD = re.compile(r"(?:Fastest: Kernel \d+\n)?(?:[A-Z_]+ = \d+\n)*")
_KNOB = re.compile(r"^([A-Z_]+) = (\d+)", re.MULTILINE)
_SIZE = re.compile(r"^(ROWS|COLS) = \d+$", re.MULTILINE)
_CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_head(setting: Mapping[str, int], fastest: int | None) -> list[str]:
    r"""Return the parts of an answer up to its code.

    >>> write_head({"BLOCK_R": 4, "WARPS": 1}, 2)
    ['Fastest: Kernel 2\n', 'BLOCK_R = 4\n', 'WARPS = 1\n']
    """
    first = [f"Fastest: Kernel {fastest}\n"] if fastest else []
    return first + [f"{name} = {value}\n" for name, value in setting.items()]


def write_answer(kernel: str, fastest: int | None) -> str:
    """Return the answer that writes a kernel."""
    return "".join(write_head(read_setting(kernel), fastest)) + f"```python\n{kernel}```"


def split_answer(text: str) -> list[str]:
    r"""Return the parts of an answer; the last one is the code block.

    >>> split_answer("Fastest: Kernel 1\nWARPS = 4\n```python\nWARPS = 4\n```")
    ['Fastest: Kernel 1\n', 'WARPS = 4\n', '```python\nWARPS = 4\n```']
    """
    match = _HEAD.match(text)
    end = match.end() if match else 0
    return [*text[:end].splitlines(keepends=True), text[end:]]


def read_setting(kernel: str) -> dict[str, int]:
    """Return the values of the knobs at the top of a kernel.

    >>> read_setting("import x\\n\\nWARPS = 4  # 1, 4, 8\\n")
    {'WARPS': 4}
    """
    return {name: int(value) for name, value in _KNOB.findall(kernel)}


def read_kernel(answer: str) -> str | None:
    """Return the kernel of an answer, or None if it has no complete code block."""
    match = _CODE.search(answer)
    return match[1] if match else None


def mask_sizes(reference: str) -> str:
    """Return a reference without the values of its sizes, which give the shape away.

    >>> mask_sizes("ROWS = 8192\\nCOLS = 32\\nx = 1")
    'ROWS = ...\\nCOLS = ...\\nx = 1'
    """
    return _SIZE.sub(r"\1 = ...", reference)
