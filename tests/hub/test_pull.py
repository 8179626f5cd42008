"""Merging a published lake: by content, once, without overwriting, and trusting nothing."""

from __future__ import annotations

import hashlib
import io
import json
import logging
from pathlib import Path

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub import lakes
from hub.lakes import Edition
from hub.server import HubServer

import store
from store.errors import FlywheelError, ImportFailed, LakeUnreachable, RowsRejected
from store.hub.client import Hub
from store.hub.edition_writer import MANIFEST, Options
from store.hub.publish import publish
from store.hub.pull import pull
from store.importers import cuda_l1
from store.importers.reading.pieces import run_import
from store.lake.location import Location
from store.upkeep import integrity

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
ONE, TWO = "lab-one/kernels", "lab-two/kernels"


@pytest.fixture
def published_files(edition: Edition) -> dict[str, bytes]:
    """Return the files of a lake that was published, by path."""
    return edition.files


def counts(url: str) -> dict[str, int]:
    """Return the number of rows of every table that was merged."""
    with store.open(url) as lake:
        names = [
            name for name in lake.catalog.tables if name not in ("catalogs", "ingest_log", "tags")
        ]
        columns = ", ".join(f"(SELECT count(*) FROM {name}) AS {name}" for name in names)
        return lake.sql(f"SELECT {columns}").rows()[0]


def test_a_pull_merges_everything_once_and_says_where_it_is_from(
    rich_lake: Path, published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.hold(ONE, published_files)
    revision = server.repos[ONE].main
    mine = str(tmp_path / "mine")
    with store.writer(mine, author="tests") as writer:
        writer.append({"policies": [builders.policy("mine")]}, "of my own")
    with store.open(mine) as lake:
        identity = lake.lake_id
    done = pull(mine, ONE, hub=hub)
    theirs, ours = counts(str(rich_lake)), counts(mine)
    assert done.conflicts == []
    assert done.rows["kernels"] == theirs["kernels"] == 4
    assert {n: ours[n] for n in ("evaluations", "timings", "standings")} == {
        n: theirs[n] for n in ("evaluations", "timings", "standings")
    }
    assert any("now in quarantine" in notice for notice in done.notices)
    with store.open(mine) as lake:
        assert lake.lake_id == identity
        assert lake.sql("SELECT name FROM lakes WHERE lake_id <> $1", [identity]).rows() == [
            {"name": ONE}
        ]
        run = lake.sql("SELECT * FROM runs WHERE name = 'pull'").rows()
        assert [(row["source"], row["source_revision"], row["license"]) for row in run] == [
            (ONE, revision, "MIT")
        ]
        sources = lake.sql("SELECT DISTINCT source, source_revision FROM evaluations").rows()
        assert sources == [{"source": ONE, "source_revision": revision}]
        assert lake.sql("SELECT count(*) AS n FROM best_kernels").rows() != [{"n": 0}]
    assert integrity.check(Location.of(mine)) == []
    again = pull(mine, ONE, hub=hub)
    assert (again.rows, again.conflicts, again.snapshot) == ({}, [], done.snapshot)
    assert again.there == sum(done.rows.values()) - 2  # but for the run of the pull, and its end
    assert counts(mine) == ours


@pytest.mark.slow
def test_rows_that_differ_under_a_key_are_listed_and_stay_out(
    published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.hold(ONE, published_files)
    mine = str(tmp_path / "mine")
    own = builders.split(split="test")
    theirs = lakes.rows()["evaluations"][0]
    task, sizes = builders.task("square", license="MIT"), lakes.rows()["workloads"][0]
    kernel, device = lakes.rows()["kernels"][0], lakes.rows()["devices"][0]
    changed = theirs | {"status": "incorrect", "reason": "nan", "run_id": None, "log": None}
    with store.writer(mine, author="tests") as writer:
        rows = {"tasks": [task], "workloads": [sizes], "kernels": [kernel], "devices": [device]}
        writer.append(rows | {"splits": [own], "evaluations": [changed]}, "my own judgement")
    done = pull(mine, ONE, hub=hub)
    found = {one.table: one for one in done.conflicts}
    assert set(found) == {"splits", "evaluations"}
    assert (found["splits"].count, found["splits"].columns) == (1, "split")
    assert found["evaluations"].count == 1
    assert "status" in found["evaluations"].columns
    assert theirs["evaluation_id"][:20] in found["evaluations"].examples[0]
    with store.open(mine) as lake:
        kept = lake.sql("SELECT split FROM splits").rows()
        status = lake.sql(
            "SELECT status FROM evaluations WHERE evaluation_id = $1", [theirs["evaluation_id"]]
        ).rows()
        assert (kept, status) == ([{"split": "test"}], [{"status": "incorrect"}])
        assert lake.sql("SELECT count(*) AS n FROM kernels").rows() == [{"n": 4}]
    again = pull(mine, ONE, hub=hub)
    assert again.rows == {}
    assert [one.table for one in again.conflicts] == [one.table for one in done.conflicts]


@pytest.mark.slow
def test_two_labs_exchange_their_history(
    rich_url: str, server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    other = str(tmp_path / "other")
    with store.writer(other, author="tests") as writer:
        writer.append(lakes.rows("two"), "of the other lab")
    publish(rich_url, ONE, Options(tag="v1"), hub=hub)
    pull(other, ONE, hub=hub)
    publish(other, TWO, Options(tag="v1"), hub=hub)
    back = pull(rich_url, TWO, hub=hub)
    assert back.conflicts == []
    mine, theirs = counts(rich_url), counts(other)
    for table in (
        *("kernels", "evaluations", "timings", "findings", "standings", "generations"),
        "analyses",
    ):
        assert mine[table] == theirs[table], table
    assert pull(rich_url, TWO, hub=hub).rows == {}
    best = "SELECT task_id, kernel_id, speedup FROM best_kernels ORDER BY ALL"
    with store.open(rich_url) as one, store.open(other) as two:
        assert one.sql(best).rows() == two.sql(best).rows()
        assert one.lake_id != two.lake_id
        # What came back is the same card and host, under the name it was hashed to.
        assert one.sql("SELECT count(DISTINCT host) AS n FROM devices").rows() == [{"n": 2}]
    assert integrity.check(Location.of(rich_url)) == []


ELSEWHERE = {
    "kernels": {"source": "another importer", "source_revision": "v9", "license": "MIT"},
    "tasks": {"source": "another importer", "source_revision": "v9"},
    "task_labels": {"source": "another importer", "source_revision": "v9", "license": "MIT"},
    "splits": {"rule": "decided by hand"},
    "devices": {"memory_bytes": 1 << 33, "host": "another-host"},
    "generations": {"run_id": None, "source": "another importer"},
    "findings": {"run_id": None, "evaluation_id": None},
    "policies": {"run_id": None, "output_terms": "Apache-2.0"},
}
"""Where each of two lakes says the same rows are from."""


@pytest.mark.slow
def test_where_a_row_was_recorded_is_no_conflict(
    published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.hold(ONE, published_files)
    theirs = lakes.rows()
    with store.writer(str(tmp_path / "mine"), author="tests") as writer:
        own = builders.run("audit-here")
        mine: dict[str, list[builders.Row]] = {"runs": [own]}
        for table, changes in ELSEWHERE.items():
            given = {"run_id": own["run_id"]} if "run_id" in changes else {}
            mine[table] = [row | changes | given for row in theirs[table]]
            assert any(row != one for row, one in zip(mine[table], theirs[table], strict=True))
        # What these rows refer to is the same in both.
        mine |= {name: theirs[name] for name in ("workloads", "policies") if name not in mine}
        writer.append(mine, "the same, found here")
    done = pull(str(tmp_path / "mine"), ONE, hub=hub)
    assert done.conflicts == []
    assert not set(done.rows) & set(ELSEWHERE) - {"generations", "findings"}
    again = pull(str(tmp_path / "mine"), ONE, hub=hub)
    assert (again.rows, again.conflicts) == ({}, [])
    with store.open(str(tmp_path / "mine")) as lake:
        # The first row of a key stands.
        assert lake.sql("SELECT DISTINCT source FROM kernels").rows() == [
            {"source": "another importer"}
        ]
    assert integrity.check(Location.of(str(tmp_path / "mine"))) == []


@pytest.mark.slow
def test_the_same_release_under_another_license_is_no_conflict(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    task = "class Model: ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
    release = {
        "level_id": 1, "task_id": 1, "ref_code": task, "custom_code": "class ModelNew: ...\n",
        "cuda_graph_code": "graph = 1\n", "cudnn_code": "cudnn = 1\n", "score_default": 2.0,
        "score_torch_compile_default": 1.5, "score_torch_compile_reduce_overhead": 1.25,
        "score_cuda_graph": None, "score_cudnn": 4.0,
    }  # fmt: skip
    file = tmp_path / "h100.json"
    file.write_text(json.dumps(release) + "\n")
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    for url, license in ((mine, "GPL-3.0-only"), (theirs, "MIT")):
        with store.writer(url, author="tests") as writer:
            run_import(writer, cuda_l1, file, cuda_l1.Config(license=license))
    publish(theirs, ONE, Options(tag="v1"), hub=hub)
    done = pull(mine, ONE, hub=hub)
    assert done.conflicts == []
    with store.open(mine) as lake:
        # The terms under which this lake has the texts stand.
        terms = lake.sql("SELECT DISTINCT license FROM kernels").rows()
        assert terms == [{"license": "GPL-3.0-only"}]
        assert lake.sql("SELECT output_terms AS license FROM policies").rows() == terms


CONTRADICTIONS: list[tuple[str, dict[str, object]]] = [
    ("task_labels", {"family": "other"}),
    ("workloads", {"generator": "other"}),
    ("devices", {"model": "another GPU"}),
    ("policies", {"model": "another model"}),
    ("findings", {"quote": "another line"}),
    ("timings", {"samples_ms": [9.0] * 15}),
    ("analyses", {"bottleneck": "another"}),
]


@pytest.mark.slow
def test_what_a_row_says_still_conflicts(
    published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.hold(ONE, published_files)
    mine = lakes.rows()
    for table, change in CONTRADICTIONS:
        mine[table] = [mine[table][0] | change, *mine[table][1:]]
    with store.writer(str(tmp_path / "mine"), author="tests") as writer:
        writer.append(mine, "others say otherwise")
    done = pull(str(tmp_path / "mine"), ONE, hub=hub)
    found = {one.table: (one.count, one.columns) for one in done.conflicts}
    assert found == {table: (1, next(iter(change))) for table, change in CONTRADICTIONS}


@pytest.mark.slow
def test_a_lake_that_was_pulled_and_published_by_others_comes_back_without_conflict(
    rich_url: str, server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    middle, last = str(tmp_path / "middle"), str(tmp_path / "last")
    publish(rich_url, ONE, Options(tag="v1"), hub=hub)
    pull(middle, ONE, hub=hub)
    publish(middle, TWO, Options(tag="v1"), hub=hub)
    publish(middle, "lab-two/mirror", Options(tag="again"), hub=hub)
    # From the source, then what others made of it, then a copy of that; and home again.
    assert pull(last, ONE, hub=hub).conflicts == []
    for repo in (TWO, "lab-two/mirror", TWO, ONE):
        assert pull(last, repo, hub=hub).conflicts == [], repo
        assert pull(rich_url, repo, hub=hub).conflicts == [], repo
    for table in ("kernels", "evaluations", "timings", "generations", "findings", "analyses"):
        assert counts(last)[table] == counts(rich_url)[table], table
    with store.open(last) as lake:
        pulls = lake.sql("SELECT source FROM runs WHERE name = 'pull' ORDER BY ALL").rows()
    # The mirror has the files of TWO, which are known.
    assert {row["source"] for row in pulls} == {ONE, TWO}
    assert integrity.check(Location.of(last)) == integrity.check(Location.of(rich_url)) == []


def test_an_id_that_is_not_the_hash_of_its_text_is_refused(
    published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    path = "data/kernels/train-00000.parquet"
    rows = pq.read_table(io.BytesIO(published_files[path]))
    poisoned = pa.array(["import os; os.system('x')", *rows.column("code").to_pylist()[1:]])
    forged = _forge(published_files, path, rows.set_column(1, "code", poisoned))
    server.hold(ONE, forged)
    mine = str(tmp_path / "mine")
    with pytest.raises(ImportFailed, match="not the hash of their text"):
        pull(mine, ONE, hub=hub)
    assert counts(mine)["kernels"] == 0


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 2}, "format 2"),
        (
            {"schema": 99, "made_by": "kernel-flywheel 9.9.0"},
            r"published by 'kernel-flywheel 9\.9\.0' \(schema 99\); this is .*\nNothing was merged",
        ),
        ({"tables": {"kernels": [{"path": "../../x", "bytes": 1, "sha256": "0"}]}}, "path"),
        ({"tables": {"kernels": [{"path": "/etc/passwd", "bytes": 1, "sha256": "0"}]}}, "path"),
        ({"tables": None}, "cannot|no flywheel"),
        ({"snapshot_id": "many"}, "no flywheel"),
    ],
)
def test_a_manifest_is_not_trusted(
    change: dict[str, object], told: str, published_files: dict[str, bytes], server: HubServer,
    hub: Hub, tmp_path: Path,
) -> None:  # fmt: skip
    manifest = json.loads(published_files[MANIFEST]) | change
    server.hold(ONE, published_files | {MANIFEST: json.dumps(manifest).encode()})
    with pytest.raises(ImportFailed, match=told):
        pull(str(tmp_path / "mine"), ONE, hub=hub)
    assert not (tmp_path / "mine").exists()


def test_a_pull_says_first_that_it_makes_a_lake_and_makes_none_among_other_files(
    hub: Hub, server: HubServer, published_files: dict[str, bytes], tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    server.hold(ONE, {MANIFEST: published_files[MANIFEST]})  # its files are missing
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(LakeUnreachable, match=r"other files, such as notes\.txt"):
        pull(str(mine), ONE, hub=hub)
    assert [file.name for file in mine.iterdir()] == ["notes.txt"]
    with caplog.at_level(logging.INFO, logger="store"), pytest.raises(FlywheelError):
        pull(str(tmp_path / "new"), ONE, hub=hub)
    assert caplog.messages[0] == f"making a new lake at {tmp_path / 'new'}"
    assert not (tmp_path / "new").exists()


def test_what_is_not_there_or_no_edition_is_refused(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    mine = str(tmp_path / "mine")
    with pytest.raises(FlywheelError, match="lab/nothing does not exist"):
        pull(mine, "lab/nothing", hub=hub)
    server.hold("lab/other", {"README.md": b"# another kind of dataset\n"})
    with pytest.raises(ImportFailed, match="no flywheel"):
        pull(mine, "lab/other", hub=hub)
    with pytest.raises(FlywheelError, match="lab/other at v9 does not exist"):
        pull(mine, "lab/other@v9", hub=hub)


@pytest.mark.slow
def test_an_edition_with_the_former_name_of_a_column_is_merged(
    published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    path = json.loads(published_files[MANIFEST])["tables"]["evaluations"][0]["path"]
    rows = pq.read_table(io.BytesIO(published_files[path]))
    place = rows.schema.get_field_index("precision")
    words = pa.array(["fp32_strict"] * rows.num_rows)
    server.hold(ONE, _forge(published_files, path, rows.set_column(place, "policy", words)))
    mine = str(tmp_path / "mine")
    pull(mine, ONE, hub=hub)
    with store.open(mine) as lake:
        assert lake.sql('SELECT DISTINCT "precision" FROM evaluations').rows() == [
            {"precision": "fp32_strict"}
        ]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("wrong", ["lacks kernel_id", "has 'code' twice"])
def test_a_file_with_other_columns_than_its_table_is_refused(
    wrong: str, published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    path = json.loads(published_files[MANIFEST])["tables"]["kernels"][0]["path"]
    rows = pq.read_table(io.BytesIO(published_files[path]))
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    if wrong == "lacks kernel_id":
        forged = rows.drop_columns(["kernel_id"])
    else:
        forged = pa.Table.from_arrays(
            [*columns.values(), columns["code"]], names=[*columns, "code"]
        )
    server.hold(ONE, _forge(published_files, path, forged))
    with pytest.raises(ImportFailed, match=f"kernels: a file {wrong}"):
        pull(str(tmp_path / "mine"), ONE, hub=hub)
    assert counts(str(tmp_path / "mine"))["kernels"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("table", ["kernels", "findings"])
def test_a_row_with_a_time_that_nobody_can_read_is_refused(
    table: str, published_files: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    path = json.loads(published_files[MANIFEST])["tables"][table][0]["path"]
    rows = pq.read_table(io.BytesIO(published_files[path]))
    column = rows.schema.field("created_at")
    long_ago = pa.repeat(pa.scalar(-(2**61), pa.int64()), rows.num_rows).cast(column.type)
    forged = rows.set_column(rows.schema.get_field_index("created_at"), column, long_ago)
    server.hold(ONE, _forge(published_files, path, forged))
    with pytest.raises(RowsRejected, match="years 1 to 9999"):
        pull(str(tmp_path / "mine"), ONE, hub=hub)
    assert counts(str(tmp_path / "mine"))[table] == 0


def _forge(files: dict[str, bytes], path: str, rows: pa.Table) -> dict[str, bytes]:
    """Return an edition with other rows in one file, and a manifest that fits them."""
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    data = sink.getvalue()
    manifest = json.loads(files[MANIFEST])
    for shards in manifest["tables"].values():
        for one in shards:
            if one["path"] == path:
                one |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    return files | {path: data, MANIFEST: json.dumps(manifest).encode()}
