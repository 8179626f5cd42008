"""catalog.yaml is the schema: lakes, Arrow, docs and rules follow it, and lakes only ever grow."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, get_args

import builders
import pyarrow as pa
import pytest
import yaml
from example_counts import count_examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import store
from store.cli import reference
from store.errors import CatalogError, UnknownName
from store.lake import attachment, location, sql_files
from store.schema import catalog
from store.schema.catalog import Table
from store.schema.clocks import Clock
from store.upkeep import integrity, maintenance

ROOT = Path(store.__file__).parents[1]
CATALOG = catalog.load()


@pytest.fixture
def edit_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[dict[str, Any]], object]], Path]:
    """Return a function that edits a copy of catalog.yaml and makes it the one in use."""

    def edit(change: Callable[[dict[str, Any]], object]) -> Path:
        document = yaml.load((ROOT / "catalog.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
        change(document)
        file = tmp_path / f"catalog-{len(list(tmp_path.iterdir()))}.yaml"
        file.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False), "utf-8")
        monkeypatch.setenv("FLYWHEEL_CATALOG", str(file))
        return file

    return edit


def test_every_table_and_column_is_described_in_words() -> None:
    for table in CATALOG.tables.values():
        assert table.about.endswith("."), table.name
        for column in table.columns.values():
            assert len(column.about) > 2, (table.name, column.name)
            assert column.about[-1] in ".)", (table.name, column.name)
            assert column.sensitivity in catalog.SENSITIVITIES


def test_provenance_names_columns_that_say_where_a_row_is_from() -> None:
    document = yaml.load((ROOT / "catalog.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    everywhere = {name for table in CATALOG.tables.values() for name in table.columns}
    for name, listed in document["provenance"].items():
        known = everywhere if name == "*" else set(CATALOG.tables[name].columns)
        assert set(listed) <= known, name
    for table in CATALOG.tables.values():
        for column in table.columns.values():
            if column.type == "TIMESTAMPTZ" or column.name in ("origin", "run_id", "host"):
                assert column.provenance, (table.name, column.name)
    # What a row says stays compared.
    assert not CATALOG.tables["evaluations"].columns["status"].provenance
    assert not CATALOG.tables["claims"].columns["source"].provenance
    assert not CATALOG.tables["splits"].columns["split"].provenance


def test_names_say_their_units() -> None:
    suffixes = {"_ms": "ms", "_bytes": "bytes", "_s": "s", "_usd": "USD", "_mhz": "MHz"}
    for table in CATALOG.tables.values():
        for column in table.columns.values():
            for suffix, unit in suffixes.items():
                if column.name.endswith(suffix):
                    assert column.unit == unit, (table.name, column.name)


def test_types_are_those_that_survive_inlining() -> None:
    # A time inside a STRUCT cannot be read back while it is inlined; arrays and enums are refused.
    for table in CATALOG.tables.values():
        for column in table.columns.values():
            assert not ("STRUCT" in column.type and "TIMESTAMP" in column.type)
            assert not column.type.startswith(("ENUM", "DECIMAL"))


def test_the_catalog_says_what_null_means() -> None:
    for table in CATALOG.tables.values():
        for column in table.columns.values():
            place = f"{table.name}.{column.name}"
            if column.required:
                assert column.null_means is None, f"{place} is required, and never NULL"
            else:
                assert column.null_means, f"{place} may be NULL: say what NULL means (null_means)"
                assert column.null_means.endswith("."), place
                assert (
                    column.null_means
                    in reference.list_columns(table)[list(table.columns).index(column.name)][
                        "about"
                    ]
                )
            # One place says it.
            assert "NULL" not in column.about, place


def test_docs_follow_the_catalog() -> None:
    page = (ROOT / "docs" / "tables.md").read_text("utf-8")
    assert page == reference.render_tables_page(CATALOG), "stale: run `make docs`"


def test_a_lake_follows_the_catalog(writer: store.Writer) -> None:
    connection = writer._connection
    described = connection.execute(
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() "
        "WHERE database_name = 'lake' ORDER BY table_name, column_index"
    ).fetchall()
    canonical = {
        c.type: str(connection.execute(f"SELECT typeof(NULL::{c.type})").fetchone()[0])  # type: ignore[index]
        for t in CATALOG.tables.values()
        for c in t.columns.values()
    }
    assert described == [
        (table.name, column.name, canonical[column.type], column.comment)
        for table in sorted(CATALOG.tables.values(), key=lambda t: t.name)
        for column in table.columns.values()
    ]
    tables = connection.execute(
        "SELECT table_name, comment FROM duckdb_tables() WHERE database_name = 'lake'"
    ).fetchall()
    assert dict(tables) == {table.name: table.about for table in CATALOG.tables.values()}
    options = connection.execute(
        "SELECT option_name, scope_entry, value FROM lake.options() WHERE scope = 'TABLE'"
    ).fetchall()
    wanted = {
        ("data_inlining_row_limit", f"main.{t.name}", str(t.inline))
        for t in CATALOG.tables.values()
    } | {
        ("parquet_row_group_size", f"main.{t.name}", str(t.row_group))
        for t in CATALOG.tables.values()
        if t.row_group
    }
    assert set(options) == wanted


def test_arrow_and_the_lake_agree_on_types(writer: store.Writer) -> None:
    with writer.reader() as opened:
        for table in CATALOG.tables.values():
            answer = opened.sql(f"FROM {table.name}").arrow().schema
            for wanted in table.arrow_schema:
                assert answer.field(wanted.name).type == wanted.type, (table.name, wanted.name)


def test_a_schema_is_made_in_one_commit(writer: store.Writer) -> None:
    with writer.reader() as opened:
        found = opened.run("FROM ducklake_snapshots('lake') ORDER BY snapshot_id").rows()
    assert [row["commit_message"] for row in found] == [None, "make the lake"]
    again = store.writer(writer.location.url, author="again")
    assert again.flush() == 1
    again.close()


def test_options_left_out_by_a_killed_migration_are_set_later(writer: store.Writer) -> None:
    connection = writer._connection
    table = writer.location.qualify(f"{location.METADATA}.ducklake_metadata")
    count = f"SELECT count(*) FROM {table}"
    (before,) = connection.execute(count).fetchone() or (0,)
    connection.execute(f"DELETE FROM {table} WHERE scope IS NOT NULL")
    assert connection.execute(count).fetchone() != (before,)
    with store.writer(writer.location.url, author="again") as again:
        assert again._connection.execute(count).fetchone() == (before,)


# Migration


@pytest.mark.slow
def test_new_tables_and_columns_migrate_a_lake(writer: store.Writer, edit_catalog: Any) -> None:
    kernel = builders.kernel("old")
    old = writer.append({"kernels": [kernel]}, "old")
    writer.close()
    kinds = {
        "plain": "VARCHAR",
        "listed": "INTEGER[]",
        "nested": "STRUCT(path VARCHAR, n INTEGER)[]",
    }

    def grow(document: dict[str, Any]) -> None:
        for name, kind in kinds.items():
            document["tables"]["kernels"]["columns"][name] = {"type": kind, "about": "New."}
        document["tables"]["kernels"]["columns"]["code"]["about"] = "It's another text."
        document["tables"]["notes"] = {
            "about": "New.",
            "key": ["note_id"],
            "duplicates": "reject",
            "sort": ["note_id"],
            "inline": 10,
            "columns": {
                "note_id": {"type": "VARCHAR", "required": True, "about": "Name."},
                "kernel_id": {"type": "VARCHAR", "references": "kernels", "about": "Kernel."},
            },
        }

    edit_catalog(grow)
    url = writer.location.url
    with store.open(url) as before:
        # The catalog is ahead of the lake: what is not there yet reads as typed NULLs.
        row = before.sql("SELECT plain, listed, nested, code FROM kernels").one()
        assert row == {"plain": None, "listed": None, "nested": None, "code": kernel["code"]}
        assert before.sql("FROM notes").arrow().schema.names == ["note_id", "kernel_id"]
    with store.writer(url, author="tests") as grown:
        new = builders.kernel("new", plain="p", listed=[1], nested=[{"path": "a", "n": 1}])
        note = {"note_id": "n", "kernel_id": new["kernel_id"]}
        snapshot = grown.append({"kernels": [new], "notes": [note]}, "new")
        messages = grown._connection.execute(
            "SELECT commit_message, commit_extra_info FROM ducklake_snapshots('lake') "
            "ORDER BY snapshot_id DESC LIMIT 1 OFFSET 1"
        ).fetchone()
    assert messages is not None
    assert messages[0] == "follow catalog.yaml"
    for change in ("table notes", "column kernels.plain", "description of kernels.code"):
        assert change in messages[1]
    for at in (old, old + 1, snapshot):
        with store.open(url, at) as opened:
            types = opened.sql("SELECT plain, listed, nested FROM kernels").arrow().schema.types
            assert types == [catalog.to_arrow_type(kind) for kind in kinds.values()]
            assert opened.sql("FROM notes").arrow().num_rows == (at == snapshot)
    maintenance.compact(location.Location.of(url))
    for at in (old, snapshot):
        with store.open(url, at) as opened:
            found = opened.sql(
                "SELECT plain, nested FROM kernels ORDER BY plain NULLS FIRST"
            ).rows()
            assert found[0] == {"plain": None, "nested": None}
            assert found[1:] == (
                [{"plain": "p", "nested": [{"path": "a", "n": 1}]}] if at == snapshot else []
            )
    assert integrity.check(location.Location.of(url)) == []


REFUSED: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("a column that went", lambda d: d["tables"]["kernels"]["columns"].pop("license"),
     r"no longer has kernels.license, which this lake stores\nColumns are only added"),
    ("another type",
     lambda d: d["tables"]["kernels"]["columns"]["license"].update(type="INTEGER"),
     r"kernels.license is VARCHAR in this lake and INTEGER in catalog.yaml\nTypes never change"),
    ("a wider type",
     lambda d: d["tables"]["task_labels"]["columns"]["level"].update(type="BIGINT"),
     r"task_labels.level is INTEGER in this lake and BIGINT"),
    ("a new required column",
     lambda d: d["tables"]["kernels"]["columns"].update(
         new={"type": "VARCHAR", "required": True, "about": "New."}),
     r"kernels.new is new and required.*\nAdd it without `required`"),
]  # fmt: skip


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("change", "reason"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_any_other_change_is_refused_and_changes_nothing(
    writer: store.Writer, edit_catalog: Any, change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    snapshot = writer.append({"kernels": [builders.kernel("old")]}, "old")
    writer.close()

    def grow_and_change(document: dict[str, Any]) -> None:
        document["tables"]["tasks"]["columns"]["fine"] = {"type": "VARCHAR", "about": "New."}
        change(document)

    edit_catalog(grow_and_change)
    with pytest.raises(CatalogError, match=reason):
        store.writer(writer.location.url, author="tests")
    connection = attachment.connect(to=writer.location)
    attachment.attach(connection, writer.location)
    assert attachment.find_newest_snapshot(connection) == snapshot
    columns = connection.execute("DESCRIBE lake.tasks").fetchall()
    assert "fine" not in [row[0] for row in columns]
    connection.close()


@pytest.mark.slow
def test_a_bundle_spooled_before_the_catalog_grew_is_committed_after(
    writer: store.Writer, edit_catalog: Any
) -> None:
    writer.append({"policies": [builders.policy()]}, "early", wait=False)
    writer.close()
    edit_catalog(
        lambda d: d["tables"]["policies"]["columns"].update(
            colour={"type": "VARCHAR", "about": "New."}
        )
    )
    with store.writer(writer.location.url, author="tests") as grown:
        grown.flush()
        with grown.reader() as opened:
            assert opened.sql("SELECT colour FROM policies").rows() == [{"colour": None}]


@pytest.mark.slow
def test_a_writer_goes_on_while_another_migrates(writer: store.Writer, edit_catalog: Any) -> None:
    edit_catalog(
        lambda d: d["tables"]["policies"]["columns"].update(
            colour={"type": "VARCHAR", "about": "New."}
        )
    )
    store.writer(writer.location.url, author="newer").close()
    writer.append({"policies": [builders.policy()]}, "an older catalog")
    with writer.reader() as opened:
        assert opened.sql("SELECT colour FROM policies").rows() == [{"colour": None}]


# Mistakes in the file


MISTAKES: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("no tables", lambda d: d.pop("tables"), r"is not a catalog: it has no tables\n"),
    ("no enums", lambda d: d.pop("enums"), "is not a catalog: it has no enums"),
    ("empty enums", lambda d: d.update(enums=None), "enums is empty, not a mapping"),
    ("tables are a list", lambda d: d.update(tables=[]), "tables is a list, not a mapping"),
    ("an empty table", lambda d: d["tables"].update(runs=None),
     "table runs is empty, not a mapping"),
    ("a table without key", lambda d: d["tables"]["runs"].pop("key"),
     "is not a catalog: table runs has no key"),
    ("a key that is no list", lambda d: d["tables"]["runs"].update(key="run_id"),
     "table runs: key is a text, not a list"),
    ("a column without type", lambda d: d["tables"]["runs"]["columns"]["kind"].pop("type"),
     "table runs, column kind has no type"),
    ("an empty column", lambda d: d["tables"]["runs"]["columns"].update(kind=None),
     "table runs, column kind is empty, not a mapping"),
    ("empty checks", lambda d: d["tables"]["runs"].update(checks=None),
     "table runs: checks is empty, not a mapping"),
    ("a word that YAML takes for a truth value", lambda d: d["enums"].update(cache=[True]),
     r"enum cache: \[0\] is true or false, not a text: put it in quotes"),
    ("an id of nothing", lambda d: d["tables"]["runs"].update(id={"form": "text", "of": None}),
     "table runs: id: of is empty, not a list"),
    ("a date", lambda d: d["tables"]["runs"].update(checks={"a": date(2026, 1, 1)}),
     r"table runs: checks\[\.\.\.\] is a date, not a text"),
    ("an unknown field of a table", lambda d: d["tables"]["runs"].update(colour=1),
     "table runs has an unknown field colour"),
    ("an unknown field of a column",
     lambda d: d["tables"]["runs"]["columns"]["kind"].update(colour=1),
     "table runs, column kind has an unknown field colour"),
    ("a column without description",
     lambda d: d["tables"]["runs"]["columns"]["kind"].pop("about"),
     "table runs, column kind has no about"),
    ("an unknown type",
     lambda d: d["tables"]["runs"]["columns"]["kind"].update(type="TEXT"),
     r'a lake has no type "TEXT"\nUse one of VARCHAR'),
    ("an unknown enum",
     lambda d: d["tables"]["runs"]["columns"]["kind"].update(enum="kinds"),
     "column runs.kind: no enum kinds"),
    ("an unknown table pointed at",
     lambda d: d["tables"]["splits"]["columns"]["suite"].update(references="suites"),
     "column splits.suite: no table suites"),
    ("a table of several keys pointed at",
     lambda d: d["tables"]["runs"]["columns"]["name"].update(references="splits"),
     "splits has a key of several columns"),
    ("an unknown sensitivity",
     lambda d: d["tables"]["runs"]["columns"]["host"].update(sensitivity="secret"),
     "runs.host: sensitivity is no such word"),
    ("an unknown key", lambda d: d["tables"]["runs"].update(key=["id"]),
     "table runs: key or sort names no column id"),
    ("a key that may be NULL", lambda d: d["tables"]["runs"].update(key=["host"]),
     "table runs: host is part of the key, so it is required"),
    ("the name of a view", lambda d: d["tables"].update(Speedups=d["tables"]["runs"]),
     r"table Speedups of \S+ has the name of a view\nGive the table another name"),
    ("an unknown rule of duplicates", lambda d: d["tables"]["runs"].update(duplicates="keep"),
     "table runs: duplicates is skip or reject"),
    ("an enum without its column",
     lambda d: d["enums"]["evaluation_reason"].pop("by"), "enum evaluation_reason: .* `by`"),
]  # fmt: skip


@pytest.mark.repeats(run=4)
@pytest.mark.parametrize(
    ("mistake", "reason"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_mistakes_in_the_file_are_named(
    edit_catalog: Any, mistake: Callable[[dict[str, Any]], object], reason: str
) -> None:
    file = edit_catalog(mistake)
    with pytest.raises(CatalogError, match=reason):
        catalog.load(file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "it is empty, not a mapping"),
        (b"enums: {}\ntables: [", r"it is not YAML; line 3, column 1: while parsing a flow"),
        (b"just text", "it is a text, not a mapping"),
        (b"\x00", "it is not YAML; .*control characters are not allowed"),
        (b"- a", "it is a list, not a mapping"),
        (b"enums: \xff", "byte 8 is not UTF-8"),
    ],
)
def test_a_file_that_is_no_catalog_is_refused(tmp_path: Path, text: bytes, reason: str) -> None:
    file = tmp_path / "catalog.yaml"
    file.write_bytes(text)
    with pytest.raises(CatalogError, match=f"{file} is not a catalog: {reason}") as told:
        catalog.load(file)
    assert "0x" not in str(told.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=r"cannot read the catalog .*\nName one with --catalog"):
        catalog.load(tmp_path / "none.yaml")
    with pytest.raises(CatalogError):
        catalog.load(tmp_path)


def test_an_edited_file_is_read_again(edit_catalog: Any) -> None:
    file = edit_catalog(lambda d: None)
    assert "colour" not in catalog.load(file).table("runs").columns
    text = file.read_text().replace("      host:", "      colour: {type: VARCHAR, about: New.}\n"
                                    "      host:", 1)  # fmt: skip
    file.write_text(text)
    os.utime(file, ns=(1, 1))
    assert any("colour" in table.columns for table in catalog.load(file).tables.values())


def test_names_are_suggested() -> None:
    with pytest.raises(UnknownName, match='no table "kernal"\nDid you mean "kernels"'):
        CATALOG.table("kernal")
    with pytest.raises(UnknownName, match="There are: analyses"):
        CATALOG.table("zzzzzz")
    with pytest.raises(UnknownName, match='Did you mean "leaderboard"'):
        sql_files.read_view("leaderbord")


# Any rows that a schema admits come back as they were

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.sampled_from(
    ["", "'", "''", '"', "\\", "\n", "\r\n", "\0", "a\0b", "NULL", "null", "'; DROP TABLE x; --",
     "{}", "[]", "\u202e", "\U0001f600", "ÿ" * 3000, "%", "1", "nan", "$1", "?"],
)  # fmt: skip
NESTED = TEXTS.map(lambda text: text.replace("\0", "0"))  # refused inside lists and structs
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(lambda t: t.replace(tzinfo=UTC))


def _values(kind: str) -> st.SearchStrategy[Any]:
    if kind.endswith("[]"):
        inner = NESTED if kind == "VARCHAR[]" else _values(kind[:-2])
        return st.lists(st.none() | inner, max_size=5)
    return {
        "VARCHAR": TEXTS,
        "BOOLEAN": st.booleans(),
        "INTEGER": st.integers(-(2**31), 2**31 - 1),
        "BIGINT": st.integers(-(2**63), 2**63 - 1),
        "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "DOUBLE": st.floats(allow_nan=False, allow_infinity=False)
        | st.sampled_from([-0.0, 5e-324]),
        "DATE": st.dates(date(1, 1, 1), date(9999, 12, 31)),
        "TIMESTAMPTZ": TIMES,
        "STRUCT(path VARCHAR, code VARCHAR)": st.fixed_dictionaries(
            {"path": st.none() | NESTED, "code": st.none() | NESTED}
        ),
    }[kind]


# Columns of every type; the tables' own checks are not the matter here.
KINDS = sorted({c.type for t in CATALOG.tables.values() for c in t.columns.values()})
ANYTHING = {
    "about": "Any rows.",
    "key": ["name"],
    "duplicates": "skip",
    "sort": ["name"],
    "inline": 4,
    "columns": {"name": {"type": "VARCHAR", "required": True, "about": "Key."}}
    | {
        f"c{n}": {"type": kind, "about": "Any."}
        | ({"null_elements": True} if kind.endswith("[]") else {})
        for n, kind in enumerate(KINDS)
    },
}
ROWS = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES} | {f"c{n}": st.none() | _values(kind) for n, kind in enumerate(KINDS)}
    ),
    min_size=1,
    max_size=9,
    unique_by=lambda row: row["name"],
)


@pytest.fixture
def typed_writer(tmp_path: Path) -> Iterator[store.Writer]:
    """Return a writer of a lake with a table of every type."""
    folder = tmp_path
    whole = yaml.load((ROOT / "catalog.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    own = {name: whole["tables"][name] for name in ("lakes", "tags", "ingest_log")}
    document = {"enums": {}, "tables": own | {"anything": ANYTHING}}
    file = folder / "catalog.yaml"
    file.write_text(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_CATALOG", str(file))
        with store.writer(str(folder / "lake"), author="tests") as writer:
            yield writer


def _is_same(one: Any, other: Any) -> bool:
    """Compare values so that -0.0 differs from 0.0 and floats keep their bits."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other) and type(one) is type(other)


def _make_expected(table: Table, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    arrow = pa.Table.from_pylist(rows, table.arrow_schema)
    return {row["name"]: row for row in arrow.to_pylist()}


def test_any_rows_come_back_as_they_were(typed_writer: store.Writer) -> None:
    @settings(
        max_examples=count_examples(25),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(rows=ROWS)
    def comes_back(rows: list[dict[str, Any]]) -> None:
        # The names of one draw stay apart from those of the others.
        draw = store.ids.uuid7()
        rows = [row | {"name": draw + row["name"]} for row in rows]
        snapshot = typed_writer.append({"anything": rows}, "any rows")
        with typed_writer.reader(snapshot) as opened:
            found = opened.sql("FROM anything WHERE starts_with(name, ?)", [draw]).rows()
        expected = _make_expected(typed_writer._catalog.table("anything"), rows)
        assert {row["name"] for row in found} == expected.keys()
        for row in found:
            for name, value in row.items():
                wanted = expected[row["name"]][name]
                assert _is_same(value, wanted), (name, value, wanted)

    comes_back()
    # Some are inlined and some in files; now all are in files.
    with typed_writer.reader() as opened:
        before = opened.sql("FROM anything ORDER BY name").arrow()
        snapshot = opened.snapshot
    assert before.num_rows > 0
    maintenance.compact(typed_writer.location)
    for at in (snapshot, None):
        with typed_writer.reader(at) as opened:
            assert opened.sql("FROM anything ORDER BY name").arrow().equals(before)


def test_the_clocks_of_options_are_those_of_the_catalog() -> None:
    assert get_args(Clock) == tuple(catalog.load().enums["clock"].values)
