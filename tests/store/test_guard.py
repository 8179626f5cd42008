"""User SQL: plain questions are answered, and whatever reaches outside the lake is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import store
from store.errors import FlywheelError, UnknownName, UnsafeSQL

ROWS = 30


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Iterator[store.Lake]:
    """Return a pinned reader of a lake with policies in a data file."""
    folder = tmp_path_factory.mktemp("guard") / "lake"
    shutil.copytree(empty_lake, folder)
    with store.writer(str(folder), author="tests") as writer:
        rows = [
            {"policy_id": f"p{n:02}", "name": "p", "kind": "person", "round": n}
            for n in range(ROWS)
        ]
        writer.append({"policies": rows}, "policies")
    with store.open(str(folder)) as opened:
        yield opened


@pytest.mark.repeats(run=10)
@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT count(*) FROM policies", ROWS),
        ("FROM policies SELECT count(*)", ROWS),
        ("select count(*) from POLICIES;", ROWS),
        ("SELECT count(*) FROM policies; -- with a comment", ROWS),
        ("/* a; b */ WITH p AS (FROM policies) SELECT count(*) FROM p", ROWS),
        ("WITH policies AS (FROM policies WHERE round < 3) SELECT count(*) FROM policies", 3),
        ("WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 5) "
         "SELECT max(i) FROM n", 5),
        ("WITH a AS (SELECT 1 AS i), b AS (FROM a) SELECT max(i) FROM (FROM b)", 1),
        ("WITH a AS (SELECT 1 AS i) SELECT (SELECT max(i) FROM a) UNION ALL SELECT 2 ORDER BY 1",
         1),
        ("VALUES (7)", 7),
        ("SELECT count(*) FROM (DESCRIBE policies)", 14),
        ("SELECT count(*) FROM (SUMMARIZE policies)", 14),
        ("SELECT count(*) > 20 FROM (SHOW TABLES)", True),
        ("PIVOT policies ON kind IN ('person') USING count(*) GROUP BY name", "p"),
        ("SELECT count(*) FROM (UNPIVOT policies ON policy_id, name INTO NAME n VALUE v)",
         2 * ROWS),
        ("PIVOT policies ON kind USING count(*) GROUP BY name", "p"),
        ("SELECT count(*) FROM (PIVOT policies ON round % 2, kind USING sum(round)) -- all", ROWS),
        ("WITH p AS (FROM policies WHERE round < 3) "
         "FROM (PIVOT p ON 'r' || round USING max(round)) SELECT max(r2)", 2),
        # Values come from the WITH part, whatever else has its name.
        ("WITH duckdb_databases AS (SELECT 1 AS x) "
         "SELECT count(*) FROM (PIVOT duckdb_databases ON x USING count(*))", 1),
        ("PIVOT_WIDER policies ON round IN (1, 2), kind USING count(*) GROUP BY name", "p"),
        ("UNPIVOT (SELECT count(*) AS kinds FROM policies) ON COLUMNS(*)", "kinds"),
        ("EXPLAIN SELECT count(*) FROM policies", "physical_plan"),
        ("EXPLAIN (FROM policies)", "physical_plan"),
        ("SELECT sum(round) OVER (ORDER BY round) FROM policies ORDER BY round LIMIT 1", 0),
        ("SELECT row_number() OVER (PARTITION BY kind ORDER BY round) AS n FROM policies "
         "QUALIFY n = 1", 1),
        ("SELECT count(*) FROM policies WHERE policy_id IN ('p01', 'p02')", 2),
        ("SELECT sum(x) FROM unnest([1, 2, 3]) AS t(x)", 6),
        ("SELECT count(*) FROM policies, range(3)", 3 * ROWS),
        ("SELECT count(*) FROM policies AS a, LATERAL (SELECT a.round AS r) WHERE r < 2", 2),
        ("SELECT list_sum(list_transform([1, 2], lambda x: x * 2))", 6),
        ("SELECT count(*) FROM json_each('[1, 2]')", 2),
        ("SELECT count(*) FROM policies SEMI JOIN policies AS other USING (policy_id)", ROWS),
        ("SELECT '; DROP TABLE policies'", "; DROP TABLE policies"),
        ("SELECT count(*) FROM policies WHERE name = 'FROM ''/etc/passwd'''", 0),
    ],
)  # fmt: skip
def test_plain_questions_are_answered(lake: store.Lake, query: str, answer: object) -> None:
    row = lake.sql(query).one()
    assert row is not None
    assert next(iter(row.values())) == answer


def test_parameters_fill_in_values(lake: store.Lake) -> None:
    positional = lake.sql("SELECT count(*) AS n FROM policies WHERE round < ?", [4]).one()
    named = lake.sql("SELECT count(*) AS n FROM policies WHERE round < $n", {"n": 4}).one()
    assert positional == named == {"n": 4}


STATEMENTS = [
    "ATTACH 'sqlite:{catalog}' AS stolen",
    "ATTACH 'ducklake:sqlite:{catalog}' AS stolen",
    "ATTACH ':memory:' AS other",
    "DETACH lake",
    "USE lake",
    "COPY policies TO '{data}/planted.parquet'",
    "COPY (SELECT 1) TO '{data}/planted.csv'",
    "COPY policies TO '/tmp/planted.csv'",
    "COPY policies FROM '/etc/passwd'",
    "COPY FROM DATABASE lake TO memory",
    "EXPORT DATABASE '{data}/export'",
    "IMPORT DATABASE '{data}/export'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{data}/evil.duckdb_extension'",
    "FORCE INSTALL httpfs FROM community",
    "UPDATE EXTENSIONS",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET VARIABLE x = 1",
    "RESET enable_external_access",
    "PRAGMA database_list",
    "PRAGMA table_info('policies')",
    "PRAGMA enable_profiling",
    "CALL lake.set_option('target_file_size', '1MB')",
    "CALL ducklake_expire_snapshots('lake', versions => [1])",
    "CALL pragma_version()",
    "CHECKPOINT",
    "VACUUM",
    "ANALYZE",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "INSERT INTO policies VALUES ('x')",
    "INSERT INTO lake.main.policies BY NAME SELECT 'x' AS policy_id",
    "UPDATE policies SET name = 'x'",
    "DELETE FROM policies",
    "DELETE FROM lake.policies",
    "TRUNCATE policies",
    "MERGE INTO policies USING policies AS p ON true WHEN MATCHED THEN DELETE",
    "DROP TABLE lake.policies",
    "DROP VIEW policies",
    "ALTER TABLE lake.policies ADD COLUMN x INTEGER",
    "COMMENT ON TABLE lake.policies IS 'x'",
    "CREATE TABLE x AS FROM policies",
    "CREATE TEMP TABLE x AS FROM policies",
    "CREATE OR REPLACE TEMP VIEW policies AS SELECT 1",
    "CREATE MACRO f() AS TABLE FROM '/etc/passwd'",
    "CREATE SECRET s (TYPE s3)",
    "CREATE TYPE t AS ENUM ('a')",
    "CREATE SEQUENCE s",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "DEALLOCATE p",
    "EXPLAIN ANALYZE SELECT 1",
    "EXPLAIN (ANALYZE) SELECT 1",
    "EXPLAIN (FORMAT json) SELECT 1",
    "EXPLAIN /* */ ANALYZE SELECT 1",
    "/* */ EXPLAIN SELECT 1",
    "EXPLAIN",
    "EXPLAIN DELETE FROM policies",
    "EXPLAIN COPY policies TO '{data}/planted.csv'",
    "EXPLAIN CREATE TEMP TABLE x AS FROM policies",
    "EXPLAIN PREPARE p AS SELECT 1",
    "EXPLAIN SELECT 1; DELETE FROM policies",
    "SELECT 1; EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE DELETE FROM policies",
    "EXPLAIN ANALYZE COPY policies TO '{data}/planted.csv'",
    "EXPLAIN PIVOT policies ON kind USING count(*)",
    "PIVOT policies ON kind USING count(*); DROP TABLE lake.policies",
    "CREATE TEMP TABLE x AS FROM policies; PIVOT policies ON kind USING count(*)",
    "CREATE TYPE t AS ENUM ('a'); SELECT 1",
    "CREATE TYPE t AS ENUM ('PIVOT a ON b'); SELECT 1",
    "CREATE TYPE t AS ENUM ('a'); FROM policies -- PIVOT a ON b",
    "CREATE TYPE t AS ENUM ('a'); SELECT $$ PIVOT a ON b $$",
    "DROP VIEW policies; PIVOT policies ON kind USING count(*)",
    "SELECT 1; DROP TABLE lake.policies",
    "SELECT 1; SELECT 2",
    "SELECT 1;; ATTACH 'sqlite:{catalog}'",
    "SELECT 1 /* ; */; DELETE FROM policies --",
    "SELECT 1 --\n; DELETE FROM policies",
    "/* SELECT */ DELETE FROM policies",
    "-- SELECT 1\nDELETE FROM policies",
    "SELECT 1\0; DROP TABLE lake.policies",
    "DELETE FROM policies\0 SELECT 1",
    "",
    " ",
    ";",
    "-- nothing",
    "/*",
    "SELECT",
]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_only_one_select_like_statement_is_run(lake: store.Lake, statement: str) -> None:
    _check_refused(lake, statement)


REACHES = [
    "FROM '/etc/passwd'",
    'FROM "/etc/passwd"',
    "FROM 'file.csv'",
    "FROM 'https://example.org/x.parquet'",
    "FROM 's3://bucket/x.parquet'",
    "FROM '{file}'",
    'SELECT * FROM "{file}"',
    "DESCRIBE '{file}'",
    "SUMMARIZE '{file}'",
    "SHOW '{file}'",
    "FROM (SUMMARIZE '{file}')",
    "PIVOT '{file}' ON kind IN ('person') USING count(*)",
    "PIVOT '{file}' ON kind USING count(*)",
    "PIVOT '{file}' ON kind",
    "FROM (PIVOT '{file}' ON kind USING count(*))",
    "WITH x AS (PIVOT '{file}' ON kind USING count(*)) FROM x",
    "PIVOT (FROM '{file}') ON kind USING count(*) GROUP BY name",
    "PIVOT policies ON (SELECT count(*) FROM '{file}') USING count(*)",
    "PIVOT policies ON getenv('HOME') USING count(*)",
    "PIVOT policies ON kind USING max(getenv('HOME'))",
    "PIVOT policies ON kind USING count(*) FILTER (WHERE EXISTS (FROM '{file}'))",
    "PIVOT (FROM read_text('/etc/passwd')) ON filename USING count(*)",
    "PIVOT duckdb_databases() ON database_name USING count(*)",
    "PIVOT duckdb_databases ON database_name USING count(*)",
    "PIVOT lake.main.policies ON kind USING count(*)",
    "PIVOT policies ON kind, (SELECT 1 FROM '{file}') USING count(*)",
    "SELECT * FROM (PIVOT policies ON kind USING count(*)), '{file}'",
    "(PIVOT policies ON kind) UNION ALL BY NAME (FROM '{file}')",
    "PIVOT policies ON 'a -- ' || kind USING max((SELECT count(*) FROM '{file}'))",
    "PIVOT policies ON \"PIVOT x ON y\" USING max((SELECT count(*) FROM '{file}'))",
    'WITH a AS (PIVOT "{file}" ON kind), "{file}" AS (SELECT 1 AS kind) FROM a',
    "UNPIVOT '{file}' ON name, kind",
    "UNPIVOT (FROM read_parquet('{file}')) ON COLUMNS(*)",
    "EXPLAIN FROM '{file}'",
    "EXPLAIN (FROM '{file}')",
    "EXPLAIN FROM read_parquet('{file}')",
    "EXPLAIN FROM duckdb_databases()",
    "EXPLAIN SELECT getenv('HOME')",
    "SELECT (SELECT count(*) FROM '{file}')",
    "SELECT 1 WHERE EXISTS (FROM '{file}')",
    "SELECT * FROM policies POSITIONAL JOIN '{file}'",
    "SELECT * FROM policies ORDER BY (SELECT count(*) FROM '{file}')",
    "SELECT * FROM policies LIMIT (SELECT count(*) FROM '{file}')",
    "SELECT sum(round) FILTER (WHERE EXISTS (FROM '{file}')) FROM policies",
    "SELECT sum(round) OVER (ORDER BY (SELECT 1 FROM '{file}')) FROM policies",
    "SELECT list_transform([1], lambda x: (SELECT count(*) FROM '{file}'))",
    "SELECT 1 UNION ALL SELECT count(*) FROM '{file}'",
    "VALUES ((SELECT count(*) FROM '{file}'))",
    "WITH x AS (FROM '{file}') FROM x",
    "WITH x AS MATERIALIZED (FROM '{file}') FROM x",
    "WITH RECURSIVE x AS (SELECT 1 UNION ALL SELECT count(*) FROM '{file}') FROM x",
    # A WITH name that is out of sight must not stand for the file or system table of that name.
    'WITH "{file}" AS (FROM "{file}") FROM "{file}"',
    'WITH a AS (FROM "{file}"), "{file}" AS (SELECT 1) FROM a',
    'SELECT * FROM (WITH "{file}" AS (SELECT 1) FROM "{file}"), "{file}"',
    'SELECT * FROM (WITH "{kelvin}" AS (SELECT 1) FROM "{kelvin}"), "{file}"',
    'WITH "{kelvin}" AS (SELECT 1) FROM "{file}"',
    "WITH duckdb_databases AS (FROM duckdb_databases) FROM duckdb_databases",
    "FROM read_csv('/etc/passwd')",
    "FROM read_csv_auto('/etc/passwd')",
    "FROM sniff_csv('/etc/passwd')",
    "FROM READ_TEXT('/etc/passwd')",
    "FROM read_blob('{data}/**')",
    "FROM read_json('/etc/passwd')",
    "FROM read_parquet('{file}')",
    "FROM parquet_scan('{file}')",
    "FROM parquet_metadata('{file}')",
    "FROM parquet_schema('{file}')",
    "FROM system.main.read_parquet('{file}')",
    "FROM glob('{data}/**')",
    "SELECT * FROM policies, LATERAL read_text(policies.name)",
    "FROM sqlite_scan('{catalog}', 'ducklake_snapshot')",
    "FROM sqlite_query('{catalog}', 'SELECT 1')",
    "FROM sqlite_attach('{catalog}')",
    "FROM ducklake_snapshots('lake')",
    "FROM ducklake_list_files('lake', 'policies')",
    "FROM ducklake_table_info('lake')",
    "FROM lake.snapshots()",
    "FROM query('DELETE FROM policies')",
    "FROM query_table('policies')",
    "FROM json_execute_serialized_sql(json_serialize_sql('FROM duckdb_secrets()'))",
    "SELECT json_serialize_plan('FROM read_parquet(''{file}'')')",
    "SELECT main.json_serialize_plan('FROM read_parquet(''{file}'')')",
    "SELECT 'FROM read_parquet(''{file}'')'.json_serialize_plan()",
    "SELECT getenv('HOME')",
    "SELECT GetEnv('HOME')",
    "SELECT current_setting('secret_directory')",
    "SELECT write_log('x')",
    "FROM duckdb_secrets()",
    "FROM duckdb_settings()",
    "FROM duckdb_databases()",
    "FROM duckdb_databases",
    "FROM duckdb_logs",
    "FROM duckdb_tables",
    "FROM pragma_database_list",
    "FROM pragma_table_info('policies')",
    "FROM sqlite_master",
    "FROM pg_catalog.pg_tables",
    "FROM information_schema.tables",
    "FROM lake.main.policies",
    "FROM lake.policies",
    "FROM main.policies",
    "FROM memory.main.policies",
    "FROM temp.policies",
    "FROM system.main.duckdb_databases",
    "FROM __ducklake_metadata_lake.ducklake_snapshot",
    "FROM __ducklake_metadata_lake.main.ducklake_data_file",
    "SHOW DATABASES",
    "SHOW ALL TABLES",
    "SHOW TABLES FROM __ducklake_metadata_lake",
    "FROM (SHOW DATABASES)",
    "FROM arrow_scan(1, 2, 3)",
    "FROM pandas_scan(1)",
    "FROM pandas_frame",
    "FROM polic\u0456es",
    "FROM \uff50olicies",
    "FROM test_all_types()",
    "FROM checkpoint()",
    "FROM enable_logging()",
]


@pytest.mark.repeats(run=40)
@pytest.mark.parametrize("query", REACHES)
def test_a_query_names_nothing_outside_the_lakes_tables(lake: store.Lake, query: str) -> None:
    pandas_frame = pq.read_table(_file(lake)).to_pandas()
    assert len(pandas_frame) == ROWS
    _check_refused(lake, query)


def test_registered_relations_are_not_for_user_sql(lake: store.Lake) -> None:
    lake.register("hidden_rows", lake.sql("FROM policies").arrow())
    assert lake.run("SELECT count(*) AS n FROM hidden_rows").one() == {"n": ROWS}
    with pytest.raises(UnknownName):
        lake.sql("FROM hidden_rows")


def test_a_view_is_what_its_file_says_whatever_the_query_calls_its_parts(
    lake: store.Lake,
) -> None:
    mine = "WITH evaluations AS (SELECT 1 AS kernel_id) SELECT count(*) AS n FROM verdicts"
    assert lake.sql(mine).one() == {"n": 0}


@pytest.mark.parametrize(
    "statement",
    [
        "FROM '/etc/passwd'",
        "FROM read_text('/etc/passwd')",
        "COPY (SELECT 1) TO '/tmp/planted.csv'",
        "ATTACH ':memory:' AS other; ATTACH '/tmp/planted.duckdb' AS planted",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
        "INSTALL httpfs",
        "LOAD httpfs",
        "INSERT INTO lake.policies BY NAME SELECT 'x' AS policy_id",
    ],
)
def test_the_connection_refuses_by_itself(lake: store.Lake, statement: str) -> None:
    # The second line, behind the guard.
    with pytest.raises(duckdb.Error):
        lake._connection.execute(statement).fetchall()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT " + "+".join(["1"] * 900),
        "SELECT " + "+".join(["1"] * 50_000),
        "SELECT " + "(SELECT " * 300 + "1" + ")" * 300,
        "SELECT " + "[" * 150 + "1" + "]" * 150,
        "SELECT " + "(" * 100_000 + "1" + ")" * 100_000,
        "x" * 1_000_000,
        "SELECT '" + "x" * 1_000_000,
        "SELECT 1 " + ";" * 100_000 + " SELECT 2",
    ],
    ids=lambda query: f"{query[:16]}… {len(query)}",
)
def test_nesting_and_length_end_in_a_refusal(lake: store.Lake, query: str) -> None:
    with pytest.raises(FlywheelError):
        lake.sql(query).rows()


@pytest.mark.slow
def test_long_questions_are_answered(lake: store.Lake) -> None:
    listed = ", ".join(f"'p{n:02}'" for n in range(20_000))
    assert lake.sql(f"SELECT count(*) AS n FROM policies WHERE policy_id IN ({listed})").one() == {
        "n": ROWS
    }
    nested = "SELECT * FROM (" * 60 + "FROM policies" + ")" * 60
    assert len(lake.sql(nested).rows()) == ROWS


def test_refusals_teach(lake: store.Lake) -> None:
    with pytest.raises(UnsafeSQL, match="COPY statements cannot be run here\nWrite one SELECT"):
        lake.sql("COPY policies TO 'x'")
    with pytest.raises(UnsafeSQL, match="PRAGMA statements cannot be run here\nWrite one SELECT"):
        lake.sql("pragma database_list")
    with pytest.raises(UnsafeSQL, match=r"read_csv\(\) reads .*\nAllowed table functions"):
        lake.sql("FROM read_csv('x')")
    with pytest.raises(UnknownName, match=r'no table or view "polices"\nDid you mean "policies"'):
        lake.sql("FROM polices")
    with pytest.raises(UnsafeSQL, match="2 statements"):
        lake.sql("SELECT 1; SELECT 2")


def _file(lake: store.Lake) -> Path:
    return next(lake.location.data.rglob("*.parquet"))


def _check_refused(lake: store.Lake, template: str) -> None:
    """Ask a hostile question and see that it is refused and leaves every file as it was."""
    file = str(_file(lake))
    query = template.replace("{catalog}", str(lake.location.catalog))
    query = query.replace("{kelvin}", file.replace("k", "\u212a")).replace("{file}", file)
    query = query.replace("{data}", str(lake.location.data))
    before = _files(lake)
    with pytest.raises(FlywheelError):
        lake.sql(query).rows()
    assert _files(lake) == before
    assert lake.sql("SELECT count(*) AS n FROM policies").one() == {"n": ROWS}


def _files(lake: store.Lake) -> dict[Path, tuple[int, int]]:
    found = [file for file in lake.location.root.rglob("*") if file.suffix not in (".sqlite-shm",)]
    return {file: (file.stat().st_size, file.stat().st_mtime_ns) for file in found}
