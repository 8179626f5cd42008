"""Prints the figures of a run: one query each, in the order in which they may be read.

    python -m lab.scores.figures OUT             # OUT/figures/NAME.csv

First the grid, what a reader of the train grid could reach, and the gate. If the grid is not
complete, a training is missing, or the gate is not passed, it stops there, before it reads what
models answer to test prompts. --pilot reads on; such figures count for nothing. Then the loop, if
OUT/search and OUT/stage-3 have its files, and trainings without the shapes that test them, if
OUT/unseen has those: each part has units of its own, compared as those of the experiment are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.scores.budget import say
from lab.scores.tasks import THIRDS, list_third

if TYPE_CHECKING:
    import duckdb

QUERIES = Path(__file__).parent / "queries"
TRAININGS = 3
FIRST = ("grid", "ceilings", "gate")
TABLES = ("scores", "units")
"""Queries that others read by name."""
REST = ("hypotheses", "cells", "power", "arms", "labels", "by_task", "answers")
AFTERWARDS = ("exchanged", "implied")
"""What the answers mean. The protocol does not state these; they were written after its figures."""


def read_query(name: str) -> str:
    """Return the text of a query."""
    return (QUERIES / f"{name}.sql").read_text("utf-8")


def connect() -> duckdb.DuckDBPyConnection:
    """Return a database in memory that knows Student's t."""
    import duckdb
    from scipy import stats

    def find_quantile(share: float, df: float) -> float:
        return float(stats.t.ppf(share, df))

    def find_tail(t: float, df: float) -> float:
        return float(stats.t.sf(t, df))

    def find_power(shift: float, df: float) -> float:
        return float(stats.nct.sf(stats.t.ppf(0.975, df), df, shift))

    database = duckdb.connect()
    functions: dict[str, Any] = {
        "t_quantile": find_quantile, "t_tail": find_tail, "t_power": find_power,
    }  # fmt: skip
    for name, function in functions.items():
        database.create_function(name, function, ["DOUBLE", "DOUBLE"], "DOUBLE")
    return database


def load(database: duckdb.DuckDBPyConnection, out: Path, scores: str = "scores") -> None:
    """Make the tables that the queries read; those without a file are empty.

    scores: Folder of OUT with the probabilities.
    """
    files = {"surface": "surface", "arms": "arms", "training_rows": "rows"}
    for table, name in files.items():
        path = str(out / f"{name}.parquet").replace("'", "''")
        database.execute(f"CREATE TABLE {table} AS FROM read_parquet('{path}')")
    columns = {
        "prompts": "prompt_id VARCHAR, named TINYINT, setting VARCHAR, probability FLOAT",
        "gate": "prompt_id VARCHAR, named TINYINT, setting VARCHAR, probability FLOAT",
        "answers": "prompt_id VARCHAR, task_id VARCHAR, arm VARCHAR, draw INTEGER, "
        "answer VARCHAR, kernel_id VARCHAR",
    }
    for table, types in columns.items():
        database.execute(f"CREATE TABLE {table} (seed INTEGER, {types})")
        insert(database, table, out / scores)


def insert(
    database: duckdb.DuckDBPyConnection, table: str, folder: Path, name: str = "", where: str = ""
) -> None:
    """Insert the rows of each training from files NAME-SEED.parquet.

    name: NAME, by default that of the table.
    """
    for file in sorted(folder.glob(f"{name or table}-*.parquet")):
        path = str(file).replace("'", "''")
        seed = int(file.stem.rpartition("-")[2])
        rows = f"SELECT {seed} AS seed, * FROM read_parquet('{path}') {where}"
        database.execute(f"INSERT INTO {table} BY NAME {rows}")


def answer(
    database: duckdb.DuckDBPyConnection, query: str, folder: Path, name: str | None = None
) -> duckdb.DuckDBPyRelation:
    """Write and print the answer to a query, and keep it as the table figure_NAME.

    name: Name of the figure (default: that of the query).
    """
    name = name or query
    database.execute(f"CREATE TABLE figure_{name} AS {read_query(query)}")
    table = database.table(f"figure_{name}")
    table.write_csv(str(folder / f"{name}.csv"))
    say(f"\n{name}")
    table.show(max_rows=60, max_width=200)  # pyright: ignore[reportCallIssue]
    return table


def print_figures(out: Path, *, pilot: bool) -> bool:
    """Print the figures; return whether all may be read.

    Args:
        out: Folder of the run.
        pilot: Read on where the grid, the trainings or the gate are not as they have to be.
    """
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    database = connect()
    load(database, out)
    for name in FIRST:
        answer(database, name, folder)
    [(whole,)] = database.execute(
        "SELECT count(*) = 2 AND bool_and(kernels = wanted AND NOT contains(versions, ',') "
        "AND NOT contains(devices, ',')) FROM figure_grid"
    ).fetchall()
    [(trainings, passed)] = database.execute(
        "SELECT count(*), coalesce(bool_and(passed), false) FROM figure_gate"
    ).fetchall()
    [(unscored,)] = database.execute(
        "SELECT count(*) FROM (SELECT DISTINCT gate.seed, arms.prompt_id FROM gate, arms) "
        "ANTI JOIN prompts USING (seed, prompt_id)"
    ).fetchall()
    reasons = [
        why
        for why, holds in (
            ("the grid is not complete", whole),
            (f"there are {trainings} trainings and not {TRAININGS}", trainings == TRAININGS),
            (f"{unscored} prompts are not scored", unscored == 0),
            ("the gate is not passed", passed),
        )
        if not holds
    ]
    if reasons:
        say("; ".join(reasons))
        if not pilot:
            return False
    database.execute(f"CREATE TABLE gate_passed AS SELECT {bool(passed)} AS passed")
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} AS {read_query(name)}")
    for name in REST:
        if name != "answers" or database.table("answers").limit(1).fetchall():
            answer(database, name, folder)
    database.execute("ALTER TABLE units RENAME TO units_before")
    for name in AFTERWARDS:
        answer(database, name, folder)
    for name in ("constant", "decided"):
        compare(database, name, read_query(f"{name}_units"), folder)
    print_loop(database, out, folder)
    if (out / "unseen").exists():
        print_unseen(database, out, folder)
    return not reasons


def print_loop(database: duckdb.DuckDBPyConnection, out: Path, folder: Path) -> None:
    """Print the figures of the search and of stage 3, as far as their files are there."""
    if (out / "search").exists():
        database.execute(
            "CREATE TABLE attempts (seed INTEGER, arm VARCHAR, task_id VARCHAR, draw INTEGER, "
            "round INTEGER, shown VARCHAR[], setting VARCHAR)"
        )
        insert(database, "attempts", out / "search", "search")
        answer(database, "rounds", folder)
        answer(database, "listed", folder)
        answer(database, "predicted", folder)
        compare(database, "search", read_query("search_units"), folder)
    if (out / "stage-3").exists():
        database.execute("DELETE FROM prompts")
        # Prompts without scores are answered by the model that was trained without them.
        unscored = "(SELECT prompt_id FROM arms WHERE shown_scores IS NULL)"
        for name, words in (("right", "NOT IN"), ("no_scores", "IN")):
            where = f"WHERE prompt_id {words} {unscored}"
            insert(database, "prompts", out / "stage-3" / name, where=where)
        database.execute(f"CREATE OR REPLACE TABLE scores AS {read_query('scores')}")
        answer(database, "masses", folder)
        compare(database, "stage_3", read_query("units"), folder)
        compare(database, "growth", read_query("growth_units"), folder)


def print_unseen(database: duckdb.DuckDBPyConnection, out: Path, folder: Path) -> None:
    """Print the figures of trainings that have left out the shapes of the tasks that test them.

    Each third of the shapes has trainings of its own, in OUT/unseen/THIRD. The train grid that the
    queries read is without these shapes, too.
    """
    units = {"unseen": "constant_units", "unseen_decided": "decided_units"}
    passed = True
    for third in range(THIRDS):
        seen = connect()
        load(seen, out, f"unseen/{third}")
        seen.execute("SET VARIABLE held = ?", [sorted(list_third(third))])
        seen.execute(
            "DELETE FROM surface "
            "WHERE (split = 'train') = list_contains(getvariable('held'), task_id);"
            "UPDATE arms SET places = list_filter("
            "places, lambda one: list_contains(getvariable('held'), one.task_id))"
        )
        answer(seen, "ceilings", folder, f"unseen_ceilings_{third}")
        answer(seen, "gate", folder, f"unseen_gate_{third}")
        [(trainings, gate)] = seen.execute(
            f"SELECT count(*), coalesce(bool_and(passed), false) FROM figure_unseen_gate_{third}"
        ).fetchall()
        if trainings != TRAININGS:
            say(f"third {third} has {trainings} trainings and not {TRAININGS}")
            return
        passed = passed and gate
        for name in TABLES:
            seen.execute(f"CREATE TABLE {name} AS {read_query(name)}")
        seen.execute("ALTER TABLE units RENAME TO units_before")
        seen.execute(f"CREATE TABLE units_constant AS {read_query('constant_units')}")
        for name, query in units.items():
            database.register("of_third", seen.execute(read_query(query)).to_arrow_table())
            database.execute(
                f"CREATE TABLE IF NOT EXISTS units_{name} AS FROM of_third LIMIT 0;"
                f"INSERT INTO units_{name} BY NAME FROM of_third"
            )
    database.execute(f"CREATE OR REPLACE TABLE gate_passed AS SELECT {passed} AS passed")
    for name in units:
        database.execute(f"CREATE OR REPLACE TABLE units AS FROM units_{name}")
        answer(database, "hypotheses", folder, name)
        answer(database, "cells", folder, f"{name}_cells")
        answer(database, "speeds", folder, f"{name}_speeds")


def compare(database: duckdb.DuckDBPyConnection, name: str, units: str, folder: Path) -> None:
    """Print the comparisons of hypotheses.sql over the units of a query."""
    database.execute(f"CREATE TABLE units_{name} AS {units}")
    database.execute(f"CREATE OR REPLACE TABLE units AS FROM units_{name}")
    answer(database, "hypotheses", folder, name)


def main() -> None:
    """Print the figures, and exit with 1 if they may not be read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--pilot", action="store_true", help="read on; it counts for nothing")
    given = parser.parse_args()
    sys.exit(0 if print_figures(given.out, pilot=given.pilot) else 1)


if __name__ == "__main__":
    main()
