"""Members of the store: each bare file of a room is one, and machinery is none."""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

import store
from store.commandline import members
from store.errors import UnknownName
from store.generated.writing import families
from store.headlines import story

CONTRACTS = {
    "store.importers": ("Config", "read"),
    "store.exporters": ("Config", "write"),
}
OWN = '''"""Rows of my own.

And how they are read.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options."""


def read(path, config, lake):
    yield from ()
'''


@pytest.mark.parametrize("room", list(CONTRACTS))
def test_every_member_of_a_room_follows_its_contract(room: str) -> None:
    found = members.find_members(room)
    assert len(found) > 4
    for one in found.values():
        module = one.load()
        assert all(hasattr(module, name) for name in CONTRACTS[room]), one.name
        assert one.about.endswith("."), one.name
        # What the command line reads of its options, those of a base in another module too.
        members.annotate_config(module.Config)
        assert typing.get_type_hints(module.Config.__init__)


def test_every_family_draws_tasks() -> None:
    names = families.family_names()
    assert len(names) > 7
    for name in names:
        family = families.load_family(name)
        assert family.SPLIT in ("train", "test")
        assert callable(family.task)


def test_headlines_are_folders_of_sql(writer: store.Writer) -> None:
    with writer.reader() as lake, pytest.raises(UnknownName) as refused:
        story.read_story(lake, "zzz")
    assert refused.value.hint == "There are: cuda-l1"


def test_a_file_of_ones_own_is_a_member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "flywheel" / "importers"
    own.mkdir(parents=True)
    (own / "my_rows.py").write_text(OWN)
    (own / "_helper.py").write_text("raise AssertionError\n")
    (own / "reading").mkdir()
    (own / "reading" / "text.py").write_text("raise AssertionError\n")
    found = members.find_members("store.importers")
    assert set(found) - {"my-rows"} == {
        file.stem.replace("_", "-")
        for file in Path(str(members.__file__)).parents[1].joinpath("importers").glob("[!_]*.py")
    }
    assert found["my-rows"].about == "Rows of my own."
    assert list(found["my-rows"].load().read(None, None, None)) == []
    (own / "starter.py").write_text(OWN)
    with pytest.raises(UnknownName, match='there is a member "starter" already'):
        members.find_members("store.importers")
