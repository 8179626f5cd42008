"""Reads one row of the AI CUDA Engineer Archive tolerantly."""

from __future__ import annotations

import ast
import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

from store.errors import ImportFailed

MESSAGE_CHARACTERS = 500
PROFILE_CHARACTERS = 100_000
_ABSENT = ("", "None", "nan")


@dataclass(frozen=True)
class ArchiveRow:
    """A row with its place in the archive."""

    COLUMNS: ClassVar[dict[str, bool]] = {
        "PyTorch_Code_Module": True,
        "CUDA_Code": True,
        "Level_ID": False,
        "Task_ID": False,
        "Op_Name": False,
        "Kernel_Name": False,
        "PyTorch_Code_Functional": False,
        "CUDA_Runtime": False,
        "CUDA_Speedup_Native": False,
        "CUDA_Speedup_Compile": False,
        "Correct": False,
        "Max_Diff": False,
        "Error": False,
        "NCU_Profile": False,
        "Torch_Profile": False,
        "Clang_Tidy": False,
    }
    """Columns, and whether each is required."""

    values: dict[str, Any]
    where: str

    def text(self, column: str) -> str | None:
        """Return a text; the archive writes a missing one as NULL, "None" or nothing."""
        value = self.values[column]
        if value is None or value in _ABSENT:
            return None
        if not isinstance(value, str):
            raise ImportFailed(f"{self.where}: {column} is {value!a:.40}, no text")
        if "\0" in value:
            raise ImportFailed(f"{self.where}: {column} holds a zero byte")
        return value

    def number(self, column: str) -> int | None:
        """Return a whole number of 0 or more; they are floats if a column has gaps."""
        value = self.figure(column)
        if value is None:
            return None
        if value != int(value) or not 0 <= value < 1_000_000:
            raise ImportFailed(f"{self.where}: {column} is {value}, no number of a task")
        return int(value)

    def figure(self, column: str) -> float | None:
        """Return a finite number, or None."""
        value = self.values[column]
        if value is None or isinstance(value, bool):
            return None
        try:
            figure = float(value)
        except (TypeError, ValueError):
            raise ImportFailed(f"{self.where}: {column} is {value!a:.40}, no number") from None
        return figure if math.isfinite(figure) else None

    def verdict(self) -> tuple[str, str | None]:
        """Return status and reason; the archive distinguishes correct, incorrect and failed."""
        correct = self.values["Correct"]
        if correct is not None and not isinstance(correct, bool):
            raise ImportFailed(f"{self.where}: Correct is {correct!a:.40}, not true or false")
        if correct:
            return "correct", None
        error = self.text("Error") or ""
        if "error building extension" in error.lower() or "compilation" in error.lower():
            return "compile_error", "build_failed"
        if error and self.figure("Max_Diff") is None:
            return "crash", "unspecified"
        differs = self.figure("Max_Diff") is not None
        return "incorrect", "incorrect_numerical" if differs else "unspecified"

    def message(self) -> str | None:
        """Return the first line of the error."""
        error = self.text("Error")
        return None if error is None else " ".join(error.split())[:MESSAGE_CHARACTERS]

    def profile(self, column: str) -> str | None:
        """Return a profile as JSON; the archive has the text of a Python dictionary.

        Only literals are evaluated; any other text stays unchanged.
        """
        written = self.text(column)
        if written is None:
            return None
        try:
            value = ast.literal_eval(written) if len(written) <= PROFILE_CHARACTERS else written
            body = json.dumps(value, indent=1, ensure_ascii=False)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            body = written
        return body[:PROFILE_CHARACTERS]
