"""Options that run a part of the tests within a limit of time: `make test-sample` uses them."""

from __future__ import annotations

import hashlib
import time
import zlib
from pathlib import Path

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


def place_file(config: pytest.Config, path: Path) -> str:
    """Return where a file of tests comes among the others, as a sort key.

    Without a limit of time, this is its path. With one, the order is another one each time, so that
    the files which start too late are not always the same ones.
    """
    until = config.getoption("--start-until")
    if until is None:
        return str(path)
    name = path.relative_to(config.rootpath)
    return hashlib.sha256(f"{until} {name}".encode()).hexdigest()


def skip_late(item: pytest.Item) -> None:
    """Skip a test that starts too late."""
    until = item.config.getoption("--start-until")
    if until is not None and time.time() > until:
        pytest.skip("not run: the time for the sample was over")
