"""Options of the judge that cannot be meant are refused before anything is judged."""

from __future__ import annotations

import math
from typing import Any

import pytest

from evaluators.judge import Config
from store.errors import FlywheelError


@pytest.mark.parametrize(
    "options",
    [
        {"calls": 0}, {"calls": -1}, {"blocks": 0}, {"timing_s": -1.0}, {"half_width": -1.0},
        {"total_s": 0.0}, {"call_s": 0.0}, {"memory_gb": math.nan}, {"file_mb": math.inf},
    ],
)  # fmt: skip
def test_numbers_out_of_range_are_refused_by_name(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(FlywheelError, match=f"^--{name.replace('_', '-')} {value} "):
        Config(**options)


def test_defaults_and_small_numbers_are_fine() -> None:
    assert Config(calls=1, timing_s=0.01, half_width=None).calls == 1
