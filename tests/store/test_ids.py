"""Ids that are hashes are bound to the bytes of their rows, wherever rows come in or go out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import builders
import pyarrow as pa
import pytest
from builders import Row

import store
from store import ids
from store.errors import CatalogError, RowsRejected
from store.lake import attachment
from store.schema import catalog, row_checks
from store.upkeep import integrity

CATALOG = catalog.load()
BOUND = [name for name, table in CATALOG.tables.items() if row_checks.list_columns(table)]
TASK = builders.task()
TEXTS = [
    "x = 1\n", "\x00\x01\x1f\x7f\x80\xff", 'quote " back \\ slash /', "é ß € 𝄞 \u2028 \ud7ff",
    "\t\r\n\b\f", "a" * 5000 + "𝄞",
]  # fmt: skip


def _messages(text: str) -> Row:
    turns = [{"role": "user", "content": text}]
    return {"prompt_id": ids.prompt_id(turns), "messages": ids.messages_json(turns)}


def _dataset(**columns: Any) -> Row:
    return builders.dataset(builders.run(), **columns)


GOOD: dict[str, Row] = {
    "tasks": TASK,
    "workloads": builders.workload(TASK, "small", '{"N": 4, "M": [1]}', dtype="float16"),
    "kernels": builders.kernel(
        "many",
        other_files=[{"path": "a.cu", "code": "é"}, {"path": "b.h", "code": "int x;"}],
        build_flags=["-O3"],
    ),
    "prompts": _messages("fast, please"),
    "datasets": _dataset(),
}
"""A row of every table whose ids are hashes."""
OTHER: dict[str, Any] = {
    "code": "y = 2\n", "path": "other.py", "entry_point": "Other", "build_flags": ["-O0"],
    "other_files": [{"path": "a.cu", "code": "e"}, {"path": "b.h", "code": "int x;"}],
    "messages": "[]", "axes": '{"N": 5}', "dtype": "float32", "name": "renamed",
    "recipe": '{"seed": 1}', "lake_id": "another", "snapshot_id": 2, "content_hash": "0" * 64,
    "task_id": builders.task("cube")["task_id"],
}  # fmt: skip
"""Another value for each column that is hashed."""


def _base(table: str) -> dict[str, list[Row]]:
    """Return the rows that a row of a table points at."""
    if table == "workloads":
        return {"tasks": [TASK, builders.task("cube")]}
    return {"runs": [builders.run()]} if table == "datasets" else {}


def _ways(writer: store.Writer) -> list[Callable[[dict[str, list[Row]]], object]]:
    return [
        lambda tables: writer.append(tables, "rows"),
        lambda tables: writer.load(tables, "rows", bundle_id="rows"),
    ]


def test_the_catalog_says_of_every_id_what_it_is_bound_to() -> None:
    assert set(GOOD) == set(BOUND)
    for table in CATALOG.tables.values():
        if len(table.key) == 1:
            assert table.id is not None, table.name
            assert (table.id.form is None) == (table.id.unbound is not None), table.name


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("table", BOUND)
def test_every_hashed_column_is_bound_at_append_and_load(table: str, writer: store.Writer) -> None:
    spec = CATALOG.table(table)
    assert spec.id is not None
    writer.append(_base(table), "what it points at")
    key = spec.key[0]
    for column in spec.id.of:
        changed = GOOD[table] | {column: OTHER[column]}
        for way in _ways(writer):
            with pytest.raises(RowsRejected, match=f"{key} is the hash of") as caught:
                way({table: [GOOD[table], changed]})
            assert (caught.value.table, caught.value.count) == (table, 1)
            assert caught.value.examples == [f"{key}={GOOD[table][key]!a}"]
    forged = GOOD[table] | {key: "a" * 64}
    for way in _ways(writer):
        with pytest.raises(RowsRejected, match="is the hash of"):
            way({table: [forged]})
    assert not list(writer.location.spool.glob("*.*"))
    with writer.reader() as opened:
        assert opened.sql(f"SELECT count(*) AS n FROM {table}").one() == {"n": 0}
    writer.append({table: [GOOD[table]]}, "as it is")
    writer.load({table: [GOOD[table]]}, "as it is", bundle_id="good")
    assert integrity.check(writer.location) == []


def test_a_forged_row_in_a_stream_of_many_batches_is_found(writer: store.Writer) -> None:
    schema = CATALOG.table("kernels").open_schema
    rows = [builders.kernel(f"n{number}") for number in range(2500)]
    rows[2345] = rows[2345] | {"code": "import os\n"}
    batches = pa.Table.from_pylist(rows, schema).to_batches(1000)
    stream = pa.RecordBatchReader.from_batches(schema, batches)
    with pytest.raises(RowsRejected, match="kernel_id is the hash of") as caught:
        writer.load({"kernels": stream}, "many", bundle_id="many")
    assert caught.value.examples == [f"kernel_id={rows[2345]['kernel_id']!a}"]
    with writer.reader() as opened:
        assert opened.sql("SELECT count(*) AS n FROM kernels").one() == {"n": 0}


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_every_kind_have_the_id_that_producers_give_them(
    text: str, writer: store.Writer
) -> None:
    code = ids.normalize(text)
    assert ids.normalize(code) == code
    rows = {
        "tasks": [{"task_id": ids.task_id(text), "code": code, "source": "tests"}],
        "kernels": [builders.kernel(code=text)],
        "prompts": [_messages(text)],
    }
    writer.append(rows, "odd texts")
    assert integrity.check(writer.location) == []


@pytest.mark.parametrize("code", ["x = 1", "x = 1\n\n", "x = 1\r\n", "\ufeffx = 1\n"])
def test_a_task_is_stored_in_its_normal_form_only(code: str, writer: store.Writer) -> None:
    # Else one id would stand for several texts.
    with pytest.raises(RowsRejected, match="task_id is the hash of code"):
        writer.append({"tasks": [TASK | {"task_id": ids.task_id(code), "code": code}]}, "raw")


def test_a_kernel_with_two_files_of_one_name_has_no_id(writer: store.Writer) -> None:
    twice = [{"path": "a.cu", "code": "one"}, {"path": "a.cu", "code": "two"}]
    again = [{"path": "kernel.py", "code": "another text of the main file"}]
    for files in (twice, again):
        kept = {one["path"]: one["code"] for one in files}
        row = builders.kernel("x", other_files=[])
        identity_of_kept = ids.kernel_id({"kernel.py": row["code"]} | kept, "kernel.py")
        row |= {"kernel_id": identity_of_kept, "other_files": files}
        with pytest.raises(RowsRejected, match="kernel_id is the hash of"):
            writer.append({"kernels": [row]}, "twice")


@pytest.mark.slow
def test_a_pulled_dataset_keeps_the_id_that_its_own_lake_gave(writer: store.Writer) -> None:
    # What publishing cuts from the recipe was hashed before.
    pulled = _dataset(name="pulled") | {"recipe": "{}", "content_hash": "cut", "origin": "lab/k"}
    writer.append(_base("datasets") | {"datasets": [pulled]}, "pulled")
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_check_finds_ids_that_went_past_the_store(writer: store.Writer) -> None:
    for table in BOUND:
        writer.append(_base(table), f"for {table}")
        writer.append({table: [GOOD[table]]}, table)
    connection = attachment.connect(to=writer.location)
    attachment.attach(connection, writer.location, writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    for table in BOUND:
        key = CATALOG.table(table).key[0]
        connection.execute(
            f"INSERT INTO lake.{table} SELECT * REPLACE ('{'a' * 64}' AS {key}) FROM lake.{table}"
            f" LIMIT 1"
        )
    connection.close()
    found = {
        problem.table: problem
        for problem in integrity.check(writer.location)
        if " is the hash of " in problem.rule
    }
    assert set(found) == set(BOUND)
    for table, problem in found.items():
        key = CATALOG.table(table).key[0]
        assert (problem.count, problem.examples) == (1, [f"{key}='{'a' * 64}'"])
        assert "backup" in problem.advice


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"form": "rot13", "of": ["code"]}, 'no form "rot13"'),
        ({"form": "text", "of": ["gone"]}, "names no other column gone"),
        ({"form": "text", "of": ["task_id"]}, "names no other column task_id"),
        ({"form": "text", "of": ["code"], "unless": "gone"}, "names no other column gone"),
        ({"form": "text"}, "does not say what it is the hash of"),
        ({"form": "text", "of": ["code"], "unbound": "why"}, "does not say what it is the hash"),
    ],
)
def test_a_catalog_that_binds_ids_to_nothing_is_refused(
    made: dict[str, Any], said: str, tmp_path: Any
) -> None:
    column = {"type": "VARCHAR", "required": True, "about": "A column."}
    table = {
        "about": "T.", "key": ["task_id"], "id": made, "duplicates": "skip", "sort": ["task_id"],
        "inline": 10, "columns": {"task_id": column, "code": column},
    }  # fmt: skip
    file = tmp_path / "catalog.yaml"
    file.write_text(json.dumps({"enums": {}, "tables": {"tasks": table}}))
    with pytest.raises(CatalogError, match=said):
        catalog.load(file)
