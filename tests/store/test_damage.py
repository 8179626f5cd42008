"""Whatever happens to a file of a lake, no other goes, and commands answer or say what to do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lake_commands
import lake_damage
import pytest
from lake_damage import FILES, WAYS
from test_command_lines import ROOMS, app_of, commands

ROOT = Path(lake_damage.__file__).parents[1]
pytestmark = pytest.mark.folder
MEMBERS = {
    "pipelines run", "trainers run", "store import", "store import kernels", "store export",
    "store export cuda-l1", "store export flashinfer-trace", "store export jsonl",
    "store export kernelbench-run", "store export parquet",
}  # fmt: skip
"""Commands of members, which the rooms add when they are called."""
AT_ONCE = 3
"""Commands of one test."""
REPORTED = {
    (kind, way)
    for kind in ("catalog.sqlite", "a data file")
    for way in ("empty", "cut", "flipped", "another lake's", "removed")
}
"""Damage that `store check` must report."""


def _list_parts() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for kind in FILES:
        names = lake_damage.list_commands(kind)
        for way in WAYS:
            for start in range(0, len(names), AT_ONCE):
                yield kind, way, tuple(names[start : start + AT_ONCE])


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("kind", "way", "names"), list(_list_parts()))
def test_no_other_file_goes_and_commands_answer_or_say_what_to_do(
    kind: str, way: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    outcome = lake_damage.run_commands(kind, way, names, tmp_path)
    assert outcome.faults == []
    if (kind, way) in REPORTED:
        assert "store check" not in outcome.answered


def test_every_command_is_tried_or_has_a_reason_not_to_be() -> None:
    listed = {*lake_commands.READS, *lake_commands.WRITES, *lake_commands.ELSEWHERE}
    there = {f"{room} {' '.join(path)}" for room in ROOMS for path, _ in commands(app_of(room))}
    # Whether the members of `trainers run` are there depends on what has run in this process.
    known = {name for name in there if name in listed or name.rpartition(" ")[0] in listed}
    assert there - {"store tag"} == known
    assert listed - there <= MEMBERS


def test_the_page_has_every_kind_of_file_and_way() -> None:
    lines = (ROOT / "docs" / "damage.md").read_text("utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    assert rows[0] == ["file", *WAYS]
    assert [row[0] for row in rows[2:]] == list(FILES)
