"""What the texts of a task and of its kernels have in common, and the text of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Module:
    """What the reference and its kernels have in common."""

    inputs: tuple[str, ...] = ("x",)
    params: tuple[str, ...] = ()
    """Parameters of one value per column."""

    @property
    def tensors(self) -> tuple[str, ...]:
        """Names in order: inputs, then parameters."""
        return (*self.inputs, *self.params)

    def forward(self, lines: Sequence[str]) -> str:
        """Return the forward method."""
        return f"    def forward(self, {', '.join(self.inputs)}):\n" + indent(lines, 8)

    def init(self, *lines: str) -> str:
        """Return the constructor; nothing where there is nothing to construct."""
        made = [f"self.{name} = nn.Parameter(torch.randn(cols))" for name in self.params]
        if not (made or lines):
            return ""
        head = "    def __init__(self, cols):" if self.params else "    def __init__(self):"
        return head + "\n" + indent(["super().__init__()", *made, *lines], 8) + "\n\n"

    def contiguous(self) -> str:
        """Return the statement that makes the inputs contiguous."""
        names = ", ".join(self.inputs)
        return f"{names} = " + ", ".join(f"{name}.contiguous()" for name in self.inputs)

    def addresses(self) -> list[str]:
        """Return the tensors as the forward method names them, without the output."""
        return [*self.inputs, *(f"self.{name}" for name in self.params)]


def render_reference(
    about: str,
    module: Module,
    lines: Sequence[str],
    sizes: Mapping[str, int],
    shapes: Sequence[str],
) -> str:
    """Return the text of a task.

    Args:
        about: What it computes.
        module: Its inputs and parameters.
        lines: Statements of `forward`.
        sizes: Module-level names and their values; COLS is the constructor's argument.
        shapes: Shape of each input, such as "ROWS, COLS".
    """
    stated = "\n".join(f"{name} = {value}" for name, value in sizes.items())
    inputs = ", ".join(f"torch.randn({shape})" for shape in shapes)
    given = "COLS" if module.params else ""
    return f'''"""{about}"""

import torch
import torch.nn as nn
{import_functional(lines)}
{stated}


class Model(nn.Module):
{module.init()}{module.forward(lines)}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return [{given}]
'''


def import_functional(lines: Sequence[str]) -> str:
    """Return the import of torch.nn.functional if the statements use it."""
    used = any("F." in line for line in lines)
    return "import torch.nn.functional as F\n" if used else ""


def indent(lines: Sequence[str], depth: int) -> str:
    """Return lines as one text, each indented by `depth` spaces."""
    blank = " " * depth
    return "\n".join(blank + line for one in lines for line in one.split("\n"))
