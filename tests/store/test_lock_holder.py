"""Who waits for the lock of a lake is told who has it."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import store
from store.lake import host
from store.lake.location import Location

POLICY = {"policy_id": "a", "name": "a", "kind": "person"}


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.fixture(autouse=True)
def _note_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("store.lake.host.NOTE_AFTER_S", 0.05)


def test_those_who_wait_for_the_lock_and_for_the_turn_are_told(
    lake_url: str, writer: store.Writer, caplog: pytest.LogCaptureFixture
) -> None:
    location = Location.of(lake_url)

    def append(author: str) -> None:
        with store.writer(lake_url, author=author) as own:
            ready.append(author)
            wait_for(held.is_set)
            own.append({"policies": [POLICY | {"policy_id": author}]}, author)

    ready: list[str] = []
    held = threading.Event()
    threads = [threading.Thread(target=append, args=[f"w{n}"]) for n in range(2)]
    with caplog.at_level(logging.INFO, logger="store"):
        for thread in threads:
            thread.start()
        wait_for(lambda: len(ready) == len(threads))
        caplog.clear()
        with location.lock("store compact"):
            held.set()
            wait_for(lambda: len(caplog.messages) >= 2)
        for thread in threads:
            thread.join()
    on_server = f"waiting for kernel-flywheel {os.getpid()} at "
    in_folder = f"waiting for store compact (pid {os.getpid()}), which took the lock "
    holder = in_folder if location.root == Path(lake_url) else on_server
    assert [one for one in caplog.messages if one.startswith(holder)]
    assert [one for one in caplog.messages if one.startswith("waiting for w")]


@pytest.mark.folder
@pytest.mark.parametrize(
    "text",
    [
        b"", b"\xff\x00", b"7", b"[" * 4096, b'{"author": 1}', b'{"author": "a", "pid": "x"}',
        b'{"author": "a", "pid": 1, "since": 1e999}', b'{"author": "a", "pid": 1, "since": NaN}',
    ],
)  # fmt: skip
def test_a_lock_file_may_hold_anything(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "lock").write_bytes(text)
    assert host.describe_holder(tmp_path / "lock") == "another process"
    with Location.of(str(tmp_path)).lock("store compact"):
        holder = json.loads((tmp_path / "lock").read_text())
    assert (holder["author"], holder["pid"]) == ("store compact", os.getpid())


def test_the_text_of_a_lock_file_is_escaped(tmp_path: Path) -> None:
    holder = {"author": "\x1b[31m" + "x" * 1000, "pid": 1, "since": time.time() + 1e6}
    (tmp_path / "lock").write_text(json.dumps(holder))
    told = host.describe_holder(tmp_path / "lock")
    assert told.startswith("\\x1b[31mxxx")
    assert told.endswith("x (pid 1), which took the lock 0 s ago")
    assert len(told) < 150
