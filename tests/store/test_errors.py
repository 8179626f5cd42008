"""The errors of the store: the tree in the module's docstring is the tree of its classes."""

from __future__ import annotations

import inspect
import re

from store import errors
from store.errors import FlywheelError


def test_the_docstring_draws_every_error_below_its_parent() -> None:
    assert errors.__doc__ is not None
    drawn: dict[str, str | None] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.match(r"([│├└─ ]*)([A-Z]\w+)  ", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        del path[depth:]
        drawn[match[2]] = path[-1] if path else None
        path.append(match[2])
    classes = [
        value
        for _, value in inspect.getmembers(errors, inspect.isclass)
        if issubclass(value, FlywheelError)
    ]
    expected = {
        error.__name__: None if error is FlywheelError else error.__bases__[0].__name__
        for error in classes
    }
    assert drawn == expected


def test_a_summary_is_one_short_line() -> None:
    assert errors.summarize_error(ValueError("first\nsecond")) == "first"
    assert errors.summarize_error(ValueError()) == "ValueError()"
    assert len(errors.summarize_error(ValueError("x" * 500))) == 160
