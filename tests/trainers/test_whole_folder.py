"""Model folders in shared places: whole, also after a kill and beside another process."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainers.models import loading
from trainers.models.loading import is_whole_model, write_once


def write_model(folder: Path, weights: str) -> None:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text(weights)


def test_the_tiny_model_is_written_again_where_a_kill_left_a_part_of_it(tmp_path: Path) -> None:
    whole = loading.find_model("tiny", tmp_path / "one")
    left = tmp_path / "two" / "tiny-0"
    left.mkdir(parents=True)
    (left / "config.json").write_bytes((whole / "config.json").read_bytes())
    found = loading.find_model("tiny", tmp_path / "two")
    assert found == left
    assert loading.compute_policy_id(found) == loading.compute_policy_id(whole)
    assert [one.name for one in (tmp_path / "two").iterdir()] == ["tiny-0"]


def test_a_folder_is_not_seen_before_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "models" / "small"

    def write(folder: Path) -> None:
        write_model(folder, "mine")
        assert not target.exists()

    assert write_once(target, write) == target
    assert is_whole_model(target)
    assert write_once(target, lambda folder: pytest.fail("written twice")) == target


def test_the_folder_of_the_faster_process_stays(tmp_path: Path) -> None:
    target = tmp_path / "small"

    def write(folder: Path) -> None:
        write_once(target, lambda other: write_model(other, "faster"))
        write_model(folder, "slower")

    write_once(target, write)
    assert (target / "model.safetensors").read_text() == "faster"
    assert [*tmp_path.iterdir()] == [target]


def test_an_error_leaves_no_folder(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        write_model(folder, "part")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_once(tmp_path / "small", write)
    assert not [*tmp_path.iterdir()]
