"""Options that run a part of the tests within a limit of time: `make test-sample` uses them."""

from __future__ import annotations

import time
import zlib

import pytest

PARTS = 6


def add_options(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("sample")
    group.addoption(
        "--sixth",
        metavar="HEX",
        type=lambda text: int(text, 16) % PARTS,
        help=f"run one of {PARTS} parts of the tests: this number, such as the hash of a tree, "
        f"modulo {PARTS}",
    )
    group.addoption(
        "--start-until",
        metavar="EPOCH",
        type=float,
        help="skip tests that have not started by then, in seconds since 1970",
    )


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other parts.

    A test stays in its part when others come and go, so that six parts are all tests.
    """
    part = config.getoption("--sixth")
    if part is None:
        return
    parts: list[list[pytest.Item]] = [[] for _ in range(PARTS)]
    for item in items:
        parts[zlib.crc32(item.nodeid.encode()) % PARTS].append(item)
    items[:] = parts.pop(part)
    for other in parts:
        config.hook.pytest_deselected(items=other)


def skip_late(item: pytest.Item) -> None:
    """Skip a test that starts too late."""
    until = item.config.getoption("--start-until")
    if until is not None and time.time() > until:
        pytest.skip("not run: the time for the sample was over")
