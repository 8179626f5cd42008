"""A lake that is moved between a folder and a server keeps its rows, history and identity."""

from __future__ import annotations

import itertools
import os
import shutil
from pathlib import Path

import builders
import commands
import pytest
from object_storage import BUCKET, ObjectStorage
from postgres_server import PostgresServer

import store
from store.errors import FlywheelError, LakeNotFound, LakeUnreachable
from store.lake import checksums
from store.lake.data_files import FolderFiles
from store.lake.location import Location
from store.upkeep import history, integrity
from store.upkeep import move as moves
from store.upkeep.move import digest_lake

pytestmark = pytest.mark.folder
NUMBERS = itertools.count()
TASK, DEVICE = builders.task("a \0 NUL, 'quotes', \\x41 and ünïcode"), builders.device()
KERNEL = builders.kernel("nan")
SIZES = builders.workload(TASK)
JUDGED = builders.evaluation(KERNEL, TASK, SIZES, DEVICE) | {
    "max_abs_error": 5e-324, "rel_l2_error": 0.1 + 0.2, "max_scaled_error": -0.0,
    "flags": ["a, b", 'c"d'], "equivalent": True, "seeds": [2**62, -1],
}  # fmt: skip


@pytest.fixture
def server_url(server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a lake that does not exist yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return server.build_url(f"move{os.getpid()}_{next(NUMBERS)}", tmp_path / "shared")


def fill(url: str) -> int:
    """Make a lake with inlined rows, files, tags and a compacted past; return its last snapshot."""
    with store.writer(url, author="tests") as writer:
        base = {"tasks": [TASK], "kernels": [KERNEL], "devices": [DEVICE], "workloads": [SIZES]}
        writer.append(base, "base")
        arms = builders.session(JUDGED, [1.0, 2.0], eager=[2.0, 4.0])
        writer.append({"evaluations": [JUDGED], "timings": arms}, "judged")
        history.add_tag(writer, "v1", None, None)
        many = [{"policy_id": f"p{n}", "name": f"p{n}", "kind": "person"} for n in range(200)]
        return writer.append({"policies": many}, "in a file")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a filled lake, to be copied."""
    folder = tmp_path_factory.mktemp("filled") / "lake"
    fill(str(folder))
    return folder


@pytest.fixture
def folder(filled: Path, lake_url: str) -> str:
    """A filled lake in a folder."""
    shutil.copytree(filled, lake_url)
    return lake_url


def read_all(url: str) -> list[tuple[str, list[tuple[object, ...]]]]:
    return list(digest_lake(Location.of(url)))


def move(source: str, target: str) -> moves.Summary:
    done = moves.move(Location.of(source), Location.of(target))
    assert isinstance(done, moves.Summary)
    return done


def read_facts(url: str) -> object:
    with store.open(url, "v1") as lake:
        row = lake.sql("FROM evaluations").rows()
        tasks = lake.sql("FROM tasks").rows()
        return str((lake.lake_id, lake.snapshot, row, tasks, lake.sql("FROM policies").rows()))


@pytest.mark.slow
def test_to_a_server_and_back_every_row_and_snapshot_is_the_same(
    server_url: str, folder: str, tmp_path: Path
) -> None:
    last = str(tmp_path / "back")
    rows, facts, salt = read_all(folder), read_facts(folder), Location.of(folder).read_salt()
    newest = len(rows[0][1]) - 1
    assert move(folder, server_url).copied > 0
    assert (read_all(server_url), read_facts(server_url)) == (rows, facts)
    assert integrity.check(Location.of(server_url), full=True) == []
    with store.writer(server_url, author="tests") as writer:  # it goes on from there
        assert writer.append({"kernels": [builders.kernel("more")]}, "more") == newest + 1
    rows = read_all(server_url)
    done = move(server_url, last)
    assert (done.snapshots, read_all(last), read_facts(last)) == (newest + 2, rows, facts)
    assert integrity.check(Location.of(last), full=True) == []
    assert Location.of(last).read_salt() == salt
    with store.writer(last, author="tests") as writer:
        assert writer.append({"kernels": [builders.kernel("again")]}, "again") == newest + 2


@pytest.mark.slow
def test_the_old_place_says_where_the_lake_is_and_its_spool_is_forwarded(
    server_url: str, folder: str, tmp_path: Path
) -> None:
    late = store.writer(folder, author="late")
    move(folder, server_url)
    with pytest.raises(LakeUnreachable, match="was moved to postgresql://"):
        store.open(folder)
    with pytest.raises(LakeUnreachable, match="was moved to postgresql://"):
        late.append({"kernels": [builders.kernel("late")]}, "late")  # spooled, not committed
    late.close()
    done = commands.run(["store", "move", folder, server_url], cwd=tmp_path)
    assert "1 spooled files were forwarded" in done.stdout, done.stderr
    with store.open(server_url) as lake:
        assert len(lake.sql("FROM kernels").rows()) == 2


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "stage",
    [
        pytest.param("copy_files", marks=pytest.mark.slow),
        "copy_catalog",
        pytest.param("_require_equal", marks=pytest.mark.slow),
        "write_move",
    ],
)
def test_an_interrupted_move_is_continued(
    stage: str, server_url: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = read_all(folder)
    source, target = Location.of(folder), Location.of(server_url)
    owner = {"write_move": type(target), "copy_files": checksums}.get(stage, moves)
    whole = getattr(owner, stage)

    def interrupt(*given: object, **words: object) -> object:
        if stage == "write_move" and given[-1] is not None:
            return whole(*given, **words)
        if stage != "write_move":
            whole(*given, **words)
        raise KeyboardInterrupt  # as if killed there

    with monkeypatch.context() as patch:
        patch.setattr(owner, stage, interrupt)
        with pytest.raises(KeyboardInterrupt):
            moves.move(source, target)
    with pytest.raises(LakeUnreachable, match="store move"):
        store.open(server_url)
    done = move(folder, server_url)
    assert done.copied == 0
    assert read_all(server_url) == rows


@pytest.mark.slow
@pytest.mark.folder
def test_a_target_inside_the_lake_is_refused(folder: str) -> None:
    rows = read_all(folder)
    for inside in ("inner", "data/inner"):
        with pytest.raises(FlywheelError, match="is inside the lake itself"):
            moves.move(Location.of(folder), Location.of(f"{folder}/{inside}"))
        assert not (Path(folder) / inside).exists()
    done = move(folder, f"{folder}-beside")
    assert (done.rows > 0, read_all(f"{folder}-beside")) == (True, rows)


@pytest.mark.slow
def test_a_target_that_is_not_empty_is_refused(
    server_url: str, folder: str, tmp_path: Path
) -> None:
    fill(server_url)
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "notes.txt").write_text("mine")
    for used in (server_url, str(tmp_path / "papers")):
        with pytest.raises(FlywheelError, match="is not empty"):
            move(folder, used)
    with pytest.raises(LakeUnreachable, match="another lake"):
        move(folder, server_url.replace("schema=", "schema=other_"))
    with pytest.raises(LakeNotFound):
        move(str(tmp_path / "nowhere"), str(tmp_path / "new"))
    with store.open(folder) as lake:
        assert len(lake.sql("FROM kernels").rows()) == 1


@pytest.mark.slow
def test_a_damaged_file_and_a_wrong_copy_stop_a_move(
    server_url: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = FolderFiles.copy_from

    def copy_wrongly(files: FolderFiles, other: FolderFiles, path: str) -> None:
        copy(files, other, path)
        place = files.folder / path
        content = bytearray(place.read_bytes())
        content[len(content) // 3] ^= 1
        place.write_bytes(content)

    with monkeypatch.context() as patch:
        patch.setattr(FolderFiles, "copy_from", copy_wrongly)
        with pytest.raises(FlywheelError, match="another sha256"):
            move(folder, server_url)
    with store.open(folder) as lake:  # which is as it was
        assert len(lake.sql("FROM policies").rows()) == 200


@pytest.mark.slow
def test_to_a_bucket_and_back(
    server: PostgresServer,
    storage: ObjectStorage,
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in storage.environment().items():
        monkeypatch.setenv(name, value)
    name = f"move{os.getpid()}_{next(NUMBERS)}"
    in_bucket = server.build_url(name, f"s3://{BUCKET}/{name}")
    rows = read_all(folder)
    move(folder, in_bucket)
    assert read_all(in_bucket) == rows
    assert integrity.check(Location.of(in_bucket)) == []
    move(in_bucket, str(tmp_path / "back"))
    assert read_all(str(tmp_path / "back")) == rows
