"""The errors of the store."""

from __future__ import annotations

from store import errors


def test_a_summary_is_one_short_line() -> None:
    assert errors.summarize_error(ValueError("first\nsecond")) == "first"
    assert errors.summarize_error(ValueError()) == "ValueError()"
    assert len(errors.summarize_error(ValueError("x" * 500))) == 160
