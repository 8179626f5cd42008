"""A lake takes over what only widens its catalog; others are refused and leave no trace."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
import yaml
from example_counts import count_examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import store
from store.errors import CatalogError, RowsRejected
from store.lake import attachment, location
from store.schema import catalog, row_checks
from store.schema.catalog import Catalog
from store.schema.migrate import widen
from store.upkeep import integrity

ROOT = Path(store.__file__).parents[1]
OLD = 2
"""Snapshot of the lake that the tests change: 1 makes it, 2 has a row."""
Document = dict[str, Any]
Change = Callable[[Document], object]


def column(kind: str = "VARCHAR", **fields: Any) -> dict[str, Any]:
    return {"type": kind, "about": "A column."} | fields


def table(key: str, columns: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "about": "A table.",
        "key": [key],
        "duplicates": "skip",
        "sort": [key],
        "inline": 10,
        "columns": columns,
    } | fields


def document() -> Document:
    """Return a catalog with one of each: keys, references, units, enums, checks."""
    whole = yaml.load((ROOT / "catalog.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    own = {name: whole["tables"][name] for name in ("lakes", "catalogs", "tags", "ingest_log")}
    reasons = {"by": "state", "good": [], "bad": ["slow", "wrong"]}
    return {
        "enums": {"colour": ["red", "green"], "state": ["good", "bad"], "reason": reasons},
        "tables": own
        | {
            "boxes": table("box_id", {"box_id": column(required=True), "alias": column()}),
            "jars": table("jar_id", {"jar_id": column(required=True)}),
            "lids": table(
                "lid_id",
                {
                    "lid_id": column(required=True),
                    "note": column(),
                    "alias": column(),
                    "origin": column(),
                },
                id={"form": "parts", "of": ["note", "alias"], "kind": "lid"},
            ),
            "things": table(
                "thing_id",
                {
                    "thing_id": column(required=True),
                    "other_id": column(required=True),
                    "box_id": column(references="boxes"),
                    "colour": column(enum="colour"),
                    "state": column(enum="state"),
                    "reason": column(enum="reason"),
                    "weight": column("DOUBLE", unit="kg", sensitivity="pseudonymous"),
                    "note": column(),
                    "sizes": column("DOUBLE[]", null_elements=True),
                },
                checks={"weights are positive": "weight IS NULL OR weight > 0"},
            ),
        },
    }


THING = {"thing_id": "t", "other_id": "o", "box_id": "b", "colour": "red", "state": "bad",
         "reason": "slow", "weight": 2.0, "note": "n", "sizes": [1.0, None]}  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a lake with a thing in a box."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "catalog.yaml").write_text(
        yaml.dump(document(), Dumper=yaml.CSafeDumper, sort_keys=False), "utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_CATALOG", str(folder / "catalog.yaml"))
        with store.writer(str(folder / "lake"), author="tests") as writer:
            writer.append({"boxes": [{"box_id": "b"}], "things": [THING]}, "old")
    return folder / "lake"


@pytest.fixture
def follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: Path
) -> Callable[[Document], store.Writer]:
    """Return a function that opens a copy of that lake for writing under a catalog."""
    shutil.copytree(template, tmp_path / "lake")

    def open_lake(content: Document) -> store.Writer:
        file = tmp_path / f"catalog-{len(list(tmp_path.iterdir()))}.yaml"
        file.write_text(yaml.dump(content, Dumper=yaml.CSafeDumper, sort_keys=False), "utf-8")
        monkeypatch.setenv("FLYWHEEL_CATALOG", str(file))
        return store.writer(str(tmp_path / "lake"), author="tests")

    return open_lake


def things(content: Document) -> Any:
    return content["tables"]["things"]


def columns(content: Document) -> Any:
    return things(content)["columns"]


REFUSED: list[tuple[str, Change, str]] = [
    ("a word of SQL for a table",
     lambda d: d["tables"].update(Order=table("a", {"a": column(required=True)})),
     "'Order' cannot be the name of a table"),
    ("a name for a table that SQL would quote",
     lambda d: d["tables"].update({"my-table": table("a", {"a": column(required=True)})}),
     "'my-table' cannot be the name of a table"),
    ("a table that went", lambda d: d["tables"].pop("jars"),
     r"no longer has the table jars, which this lake stores\nPut it back\."),
    ("another key", lambda d: things(d).update(key=["other_id"]),
     r"key of things is \(thing_id\) in this lake and \(other_id\) in catalog\.yaml\nKeys never"),
    ("a longer key", lambda d: things(d).update(key=["thing_id", "other_id"]),
     r"the key of things is \(thing_id\) in this lake and \(thing_id, other_id\)"),
    ("other duplicates", lambda d: things(d).update(duplicates="reject"),
     r"second row under a key of things is `skip` in this lake and `reject`"),
    ("another reference", lambda d: columns(d)["box_id"].update(references="jars"),
     r"things\.box_id refers to boxes in this lake and to jars in catalog\.yaml\nReferences never"),
    ("a new reference", lambda d: columns(d)["note"].update(references="boxes"),
     r"things\.note refers to no table in this lake and to boxes"),
    ("no reference", lambda d: columns(d)["box_id"].pop("references"),
     r"things\.box_id refers to boxes in this lake and to no table"),
    ("another unit", lambda d: columns(d)["weight"].update(unit="g"),
     r"unit of things\.weight is kg in this lake and g in catalog\.yaml\nUnits never change"),
    ("no unit", lambda d: columns(d)["weight"].pop("unit"), r"unit of things\.weight is kg.* none"),
    ("a value that went", lambda d: d["enums"]["colour"].remove("red"),
     r"things\.colour may no longer be red, which rows of this lake may hold\nValues of an enum"),
    ("a value that was renamed", lambda d: d["enums"].update(colour=["crimson", "green"]),
     r"things\.colour may no longer be red"),
    ("a reason that went", lambda d: d["enums"]["reason"]["bad"].remove("slow"),
     r"things\.reason may no longer be slow"),
    ("a reason that moved", lambda d: d["enums"]["reason"].update(good=["slow"], bad=["wrong"]),
     r"things\.reason may no longer be slow where state is bad"),
    ("reasons that go by nothing", lambda d: d["enums"].update(reason=["slow", "wrong"]),
     r"things\.reason may have goes by state in this lake and by no column"),
    ("reasons that go by another", lambda d: d["enums"]["reason"].update(by="colour"),
     r"goes by state in this lake and by colour"),
    ("a new enum", lambda d: columns(d)["note"].update(enum="colour"),
     r"things\.note is of any value in this lake and of enum colour"),
    ("no enum", lambda d: columns(d)["colour"].pop("enum"),
     r"things\.colour is of enum colour in this lake and of any value"),
    ("another enum", lambda d: columns(d)["colour"].update(enum="state"),
     r"things\.colour may no longer be red, green"),
    ("a new check", lambda d: things(d)["checks"].update(short="length(note) < 9"),
     r'check "short" of things is new, and stored rows may break it: `length.*`\nCheck new'),
    ("a stricter check",
     lambda d: things(d)["checks"].update({"weights are positive": "weight > 0"}),
     r'"weights are positive" of things is `.*` in this lake and `weight > 0` in .*\nChecks never'),
    ("no check", lambda d: things(d).pop("checks"), r"in this lake and no such check in catalog"),
    ("a check on a new and an old column",
     lambda d: [columns(d).update(new=column()),
                things(d)["checks"].update(both="new IS NULL OR note IS NOT NULL")],
     r'check "both" of things is new'),
    ("a check that NULL breaks",
     lambda d: [columns(d).update(new=column("INTEGER")),
                things(d)["checks"].update(one="new > 0")],
     r'check "one" of things is new'),
    ("a required column", lambda d: columns(d)["note"].update(required=True),
     r"things\.note is required in catalog\.yaml and may be NULL in this lake\nRemove `required`"),
    ("an id of fewer columns", lambda d: d["tables"]["lids"]["id"].update(of=["note"]),
     r"id of lids is the parts hash of note, alias and the word lid in this lake and the parts "
     r"hash of note and the word lid in catalog\.yaml\nRules of ids never"),
    ("an id with another word", lambda d: d["tables"]["lids"]["id"].update(kind="cap"),
     r"id of lids is .* and the word lid in this lake and .* and the word cap in"),
    ("an id of another form", lambda d: d["tables"]["lids"]["id"].update(form="workload"),
     r"id of lids is the parts hash .* and the workload hash"),
    ("an id that some rows need not have",
     lambda d: d["tables"]["lids"]["id"].update(unless="origin"),
     r"id of lids is .* \(unless origin has a value\) in catalog\.yaml"),
    ("an id that is not computed", lambda d: d["tables"]["lids"].update(id={"unbound": "Why."}),
     r"id of lids is the parts hash .* in this lake and not computed from the row in catalog"),
    ("no id", lambda d: d["tables"]["lids"].pop("id"), r"and not computed from the row in catalog"),
    ("a new id", lambda d: d["tables"]["boxes"].update(id={"form": "parts", "of": ["alias"]}),
     r"id of boxes is not computed from the row in this lake and the parts hash of alias in"),
    ("elements that may not be NULL", lambda d: columns(d)["sizes"].pop("null_elements"),
     r"elements of things\.sizes may be NULL in this lake"),
    ("a milder sensitivity", lambda d: columns(d)["weight"].update(sensitivity="public"),
     r"things\.weight is pseudonymous in this lake and public"),
    ("a column that went", lambda d: columns(d).pop("note"),
     r"no longer has things\.note, which this lake stores\nColumns are only added"),
    ("another type", lambda d: columns(d)["note"].update(type="INTEGER"),
     r"things\.note is VARCHAR in this lake and INTEGER"),
]  # fmt: skip


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("change", "told"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_does_not_only_widen_is_refused_and_changes_nothing(
    follow: Any, tmp_path: Path, change: Change, told: str
) -> None:
    new = document()
    columns(new)["fine"] = column()
    change(new)
    with pytest.raises(CatalogError, match=told):
        follow(new)
    connection = attachment.connect()
    attachment.attach(connection, location.FolderLocation(tmp_path / "lake"))
    assert attachment.find_newest_snapshot(connection) == OLD
    assert connection.execute("SELECT count(*) FROM lake.catalogs").fetchone() == (1,)
    assert ("fine",) not in connection.execute(
        "SELECT column_name FROM (DESCRIBE lake.things)"
    ).fetchall()
    connection.close()


def test_after_a_refusal_the_old_catalog_serves(follow: Any) -> None:
    changed = document()
    changed["enums"]["colour"] = ["green"]
    with pytest.raises(CatalogError):
        follow(changed)
    with follow(document()) as writer:
        writer.append({"things": [THING | {"thing_id": "later"}]}, "later")
        with writer.reader() as opened:
            assert opened.sql("SELECT count(*) AS n FROM things").rows() == [{"n": 2}]


WIDER: list[tuple[str, Change, dict[str, Any], str]] = [
    ("a new value", lambda d: d["enums"]["colour"].append("blue"), {"colour": "blue"},
     "value blue of things.colour"),
    ("a new status with reasons",
     lambda d: [d["enums"]["state"].append("odd"), d["enums"]["reason"].update(odd=["strange"])],
     {"state": "odd", "reason": "strange"}, "value odd of things.state"),
    ("a reason at another status", lambda d: d["enums"]["reason"]["good"].append("slow"),
     {"state": "good", "reason": "slow"}, "value slow of things.reason where state is good"),
    ("a column no longer required", lambda d: columns(d)["other_id"].pop("required"),
     {"other_id": None}, "NULL in things.other_id"),
    ("a checked new column",
     lambda d: [columns(d).update(new=column("INTEGER", enum=None)),
                things(d)["checks"].update(few="new IS NULL OR new < 9")],
     {"new": 8}, "column things.new"),
    ("a new column with a reference and an enum",
     lambda d: [columns(d).update(jar_id=column(references="jars"), tint=column(enum="colour"))],
     {"tint": "green"}, "column things.tint"),
    ("a stricter sensitivity", lambda d: columns(d)["weight"].update(sensitivity="private"), {},
     "sensitivity private of things.weight"),
    ("another order of files", lambda d: things(d).update(sort=["other_id"]), {},
     "order of things"),
    ("another name for a check and an enum",
     lambda d: [things(d).update(checks={"positive": "weight IS NULL  OR weight > 0"}),
                columns(d)["colour"].update(enum="tints"),
                d["enums"].update(tints=d["enums"].pop("colour"))], {}, ""),
    ("another order of values", lambda d: d["enums"]["colour"].reverse(), {}, ""),
    ("other provenance", lambda d: d.update(provenance={"things": ["note"]}), {}, ""),
]  # fmt: skip


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("change", "row", "line"), [case[1:] for case in WIDER], ids=[case[0] for case in WIDER]
)
def test_what_only_widens_is_taken_over(
    follow: Any, tmp_path: Path, change: Change, row: dict[str, Any], line: str
) -> None:
    old, new = document(), document()
    change(new)
    with follow(new) as writer:
        done = writer._connection.execute(
            "SELECT commit_extra_info FROM ducklake_snapshots('lake') "
            "WHERE commit_message = 'follow catalog.yaml'"
        ).fetchall()
        snapshot = writer.append({"things": [THING | {"thing_id": "new"} | row]}, "new")
    [(lines,)] = done
    assert (line in json.loads(lines)) if line else json.loads(lines) == []
    with store.open(str(tmp_path / "lake")) as opened:
        assert opened.sql("SELECT count(*) AS n FROM things").rows() == [{"n": 2}]
        kept = opened.sql("SELECT definition, version FROM catalogs ORDER BY created_at").rows()
    assert [json.loads(one["definition"]) for one in kept] == [old, new]
    assert {one["version"] for one in kept} == {store.describe_version()}
    with store.open(str(tmp_path / "lake"), OLD) as opened:
        assert opened.sql("SELECT count(*) AS n FROM catalogs").rows() == [{"n": 1}]
    assert integrity.check(location.FolderLocation(tmp_path / "lake")) == []
    # Nothing is left to do.
    with follow(new) as writer:
        assert writer.flush() == snapshot


@pytest.mark.slow
def test_two_versions_that_differ_in_descriptions_alone_change_nothing_in_turn(
    follow: Any, tmp_path: Path
) -> None:
    other = document()
    things(other)["about"] = "Other words."
    columns(other)["note"]["about"] = "Other words."
    other["tables"]["tags"]["id"] = {"unbound": "Other words."}

    def read_state() -> tuple[int, list[tuple[Any, ...]]]:
        connection = attachment.connect()
        attachment.attach(connection, location.FolderLocation(tmp_path / "lake"))
        schema = "SELECT max(schema_version) FROM ducklake_snapshots('lake')"
        comments = "SELECT comment FROM duckdb_columns() WHERE database_name = 'lake'"
        state = (
            attachment.find_newest_snapshot(connection),
            connection.execute(f"({schema}) UNION ALL BY NAME ({comments})").fetchall(),
        )
        connection.close()
        return state

    snapshot, described = read_state()
    for number in range(6):
        with follow([document(), other][number % 2]) as writer:
            writer.append({"boxes": [{"box_id": str(number)}]}, "in turn")
    assert read_state() == (snapshot + 6, described)
    # A change of the schema brings the descriptions with it.
    columns(other)["new"] = column()
    follow(other).close()
    assert read_state()[1] != described
    with store.open(str(tmp_path / "lake")) as opened:
        assert opened.sql("SELECT count(*) AS n FROM catalogs").rows() == [{"n": 2}]


@pytest.mark.slow
def test_an_older_version_reads_a_newer_lake_and_says_what_writes_to_it(
    follow: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = document() | {"schema": 7}
    new["enums"]["colour"].append("blue")
    columns(new)["mood"] = column()
    new["tables"]["moods"] = table("mood", {"mood": column(required=True)})
    with monkeypatch.context() as patch:
        patch.setattr("store.schema.migrate.describe_version", lambda: "9.9.9+gabcdef12")
        with follow(new) as writer:
            row = THING | {"thing_id": "new", "colour": "blue", "mood": "calm"}
            writer.append({"things": [row], "moods": [{"mood": "calm"}]}, "newer")
    with pytest.raises(CatalogError) as refused:
        follow(document() | {"schema": 6})
    assert str(refused.value) == (
        "this lake was written by kernel-flywheel 9.9.9 (schema 7); this is "
        f"{store.__version__} (schema 6)\n"
        "Install kernel-flywheel 9.9.9 or newer to write to it. This version can still read it."
    )
    with store.open(str(tmp_path / "lake")) as opened:
        rows = opened.sql("SELECT thing_id, colour FROM things ORDER BY thing_id").rows()
        assert rows == [{"thing_id": "new", "colour": "blue"}, {"thing_id": "t", "colour": "red"}]


@pytest.mark.slow
def test_a_newer_version_is_named_even_if_it_did_not_raise_the_number_of_the_schema(
    follow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = document()
    columns(new)["mood"] = column()
    with monkeypatch.context() as patch:
        patch.setattr("store.schema.migrate.describe_version", lambda: "999.0.0")
        follow(new).close()
    with pytest.raises(CatalogError, match=r"^this lake was written by kernel-flywheel 999\.0\.0 "):
        follow(document())


@pytest.mark.slow
def test_a_later_schema_may_bring_rules_that_all_stored_rows_keep(follow: Any) -> None:
    later = document() | {"schema": 1}
    things(later)["checks"]["named"] = "note IS NULL OR length(note) < 9"
    later["tables"]["jars"]["columns"]["label"] = column()
    later["tables"]["jars"]["id"] = {"form": "parts", "of": ["label"]}
    follow(later).close()
    broken = copy.deepcopy(later) | {"schema": 2}
    things(broken)["checks"]["named twice"] = "length(note) > 1"
    with pytest.raises(CatalogError, match=r'no version leads on from: the check "named twice"'):
        follow(broken)
    with follow(later) as writer, pytest.raises(RowsRejected, match="named"):
        writer.append({"things": [THING | {"thing_id": "long", "note": "n" * 9}]}, "too long")


def test_a_catalog_that_only_a_newer_version_can_read_is_named(follow: Any, tmp_path: Path) -> None:
    with follow(document()) as writer:
        newer = document()
        newer["tables"]["things"]["shelf"] = "top"
        row = {"catalog_id": "z", "definition": json.dumps(newer), "version": "9.9.9"}
        writer.append({"catalogs": [row]}, "as a newer version would")
    with pytest.raises(
        CatalogError,
        match=r"cannot read the catalog .* unknown field shelf\n+Install .* 9\.9\.9 or",
    ):
        follow(document())


@pytest.mark.slow
def test_a_lake_of_an_earlier_version_keeps_its_catalog_from_now_on(
    follow: Any, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "lake")
    early = document()
    early["tables"].pop("catalogs")
    with follow(early) as writer:
        writer.append({"boxes": [{"box_id": "b"}], "things": [THING]}, "early")
    follow(document()).close()
    with store.open(str(tmp_path / "lake")) as opened:
        assert opened.sql("SELECT count(*) AS n FROM catalogs").rows() == [{"n": 1}]
    changed = document()
    things(changed)["key"] = ["other_id"]
    with pytest.raises(CatalogError, match="the key of things"):
        follow(changed)
    with pytest.raises(CatalogError, match="no longer has the table catalogs"):
        follow(early)


def test_the_installed_catalog_keeps_and_reads_itself() -> None:
    one = catalog.load()
    again = catalog.read_definition(one.definition, "itself")
    assert again == one
    assert widen(duckdb.connect(), one, again) == []
    with pytest.raises(CatalogError, match="itself is not a catalog"):
        catalog.read_definition("{", "itself")


# ---- any catalog, any change ---------------------------------------------------------------------

COLOURS, STATES = ["red", "green", "blue"], ["good", "bad", "odd"]
CHECKS = ["a IS NULL OR a > 0", "a IS NULL OR a > 1", "c IS NULL OR c > 0", "c > 0", "true",
          "coalesce(c, 1) > 0", "b IS NULL OR length(b) < 2"]  # fmt: skip


@st.composite
def catalogs(draw: st.DrawFn) -> Document:
    """Draw a catalog of one table, whose columns a, b and list always exist and c sometimes."""
    reasons = st.lists(st.sampled_from(["slow", "wrong"]), unique=True, min_size=1)
    states = draw(st.lists(st.sampled_from(STATES), unique=True, min_size=1))
    by = {"by": draw(st.sampled_from(["state", "b"]))}
    named = draw(st.lists(st.sampled_from([*STATES, "x"]), unique=True, min_size=1))
    enum = st.sampled_from([None, "colour"])
    made = {
        "id": column(required=True),
        "a": column(
            "INTEGER", required=draw(st.booleans()), unit=draw(st.sampled_from([None, "s"]))
        ),
        "b": column(enum=draw(enum), required=draw(st.booleans())),
        "state": column(enum="state"),
        "reason": column(enum=draw(st.sampled_from([None, "reason"]))),
        "list": column("INTEGER[]", null_elements=draw(st.booleans())),
    }
    allowed = CHECKS[:2] + CHECKS[4:5] + CHECKS[6:]
    if draw(st.booleans()):
        made["c"] = column("INTEGER", required=False)
        allowed = CHECKS
    drawn = draw(st.lists(st.sampled_from(allowed), unique=True, max_size=2))
    return {
        "enums": {
            "colour": draw(st.lists(st.sampled_from(COLOURS), unique=True, min_size=1)),
            "state": states,
            "reason": by | {state: draw(reasons) for state in named},
        },
        "tables": {"t": table("id", made, checks={f"check {one}": one for one in drawn})},
    }


@st.composite
def draw_pair(draw: st.DrawFn) -> tuple[Document, Document]:
    """Draw a catalog and another; most often one that differs in few places."""
    old, other = draw(catalogs()), draw(catalogs())
    new = copy.deepcopy(old)
    for name in draw(
        st.sets(st.sampled_from([*other["enums"], *other["tables"]["t"]["columns"], "*"]))
    ):
        if name in new["enums"]:
            new["enums"][name] = other["enums"][name]
        if name in other["tables"]["t"]["columns"]:
            new["tables"]["t"]["columns"][name] = other["tables"]["t"]["columns"][name]
        if name == "*" and ("c" in new["tables"]["t"]["columns"] or "c" not in str(other)):
            new["tables"]["t"]["checks"] = other["tables"]["t"]["checks"]
    if draw(st.booleans()):
        more = [one for one in COLOURS if one not in new["enums"]["colour"]]
        new["enums"]["colour"] = [*new["enums"]["colour"], *more]
    return old, new


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.text("ij", min_size=1, max_size=2),
            "a": st.none() | st.integers(-1, 3),
            "b": st.none() | st.sampled_from([*COLOURS, "x", "good"]),
            "state": st.none() | st.sampled_from(STATES),
            "reason": st.none() | st.sampled_from(["slow", "wrong"]),
            "list": st.none() | st.lists(st.none() | st.integers(0, 1), max_size=2),
            "c": st.none() | st.integers(-1, 2),
        }
    ),
    min_size=8,
    max_size=24,
)


def read(content: Document) -> Catalog:
    return catalog.read_definition(json.dumps(content), "drawn")


def is_row(connection: duckdb.DuckDBPyConnection, of: Catalog, row: dict[str, Any]) -> bool:
    given = {name: row.get(name) for name in of.tables["t"].columns}
    rows = pa.Table.from_pylist([given], of.tables["t"].open_schema)
    connection.register("_drawn", rows)
    try:
        row_checks.check_relation(connection, of, of.tables["t"], "_drawn")
    except RowsRejected:
        return False
    return True


@pytest.mark.slow
def test_every_row_of_the_old_catalog_is_one_of_the_widened_one() -> None:
    """The rules themselves say whether a change that was taken over can break a row."""
    connection = duckdb.connect()
    seen: dict[str, int] = {"taken over": 0, "refused": 0}
    examples = max(30, count_examples(150))

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(pair=draw_pair(), rows=ROWS)
    def check_pair(pair: tuple[Document, Document], rows: list[dict[str, Any]]) -> None:
        old, new = map(read, pair)
        try:
            widen(connection, old, new)
        except CatalogError:
            seen["refused"] += 1
            assert pair[0] != pair[1]
            return
        seen["taken over"] += pair[0] != pair[1]
        added = [name for name in new.tables["t"].columns if name not in old.tables["t"].columns]
        for row in rows:
            stored = row | dict.fromkeys(added)
            if is_row(connection, old, stored):
                assert is_row(connection, new, stored), (pair, stored)

    check_pair()
    # Both ways are tried, and not by few.
    assert min(seen.values()) >= examples / 10, seen


def test_where_the_deciding_column_is_null_every_value_of_the_enum_is_allowed() -> None:
    connection = duckdb.connect()
    old = make_definition({"good": ["slow"], "bad": ["slow"]})
    new = make_definition({"good": ["slow"], "bad": ["slow"], "odd": ["wrong"]})
    for of in map(read, (old, new)):
        row = {"id": "i", "state": None, "reason": "slow"}
        assert is_row(connection, of, row)
        assert is_row(connection, of, row | {"state": "good"})
        assert not is_row(connection, of, row | {"reason": "unknown"})
    assert not is_row(connection, read(new), row | {"state": "odd"})
    assert "value wrong of t.reason" in list(widen(connection, read(old), read(new)))


def make_definition(reasons: dict[str, list[str]]) -> Document:
    """Return a catalog of one table whose column reason goes by its column state."""
    columns = {
        "id": column(required=True),
        "state": column(enum="state"),
        "reason": column(enum="reason"),
    }
    enums = {"state": list(reasons), "reason": {"by": "state", **reasons}}
    return {"enums": enums, "tables": {"t": table("id", columns)}}
