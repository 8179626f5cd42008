"""Tables and views as Polars LazyFrames, which DuckDB reads when they are collected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from example_counts import is_thorough
from new_lakes import copy_starter_lake
from polars.testing import assert_frame_equal

import store


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Yield a lake with the starter suite."""
    folder = copy_starter_lake(tmp_path_factory.mktemp("lazy") / "lake")
    with store.open(folder) as opened:
        yield opened


@pytest.mark.slow
def test_every_table_and_view_is_what_a_query_says(lake: store.Lake) -> None:
    names = [*lake.catalog.tables, *store.list_views()]
    for name in names if is_thorough() else names[::3]:
        lazy, whole = lake.lazy(name).collect(), lake.sql(f"SELECT * FROM {name}").polars()
        assert lazy.schema == whole.schema, name
        assert len(lazy) == len(whole), name


@pytest.mark.parametrize(
    ("predicate", "where"),
    [
        (pl.col("speedup") > 2, "speedup > 2"),
        (pl.col("baseline").is_in(["eager", "compile"]), "baseline IN ('eager', 'compile')"),
        ((pl.col("threads") == 1) & pl.col("clock").is_not_null(), "threads = 1"),
        (pl.col("kernel_id").str.starts_with("a"), "kernel_id LIKE 'a%'"),
        (pl.col("speedup").is_nan() | pl.col("measured_at").is_null(), "false"),
    ],
)
def test_columns_and_filters_go_down_into_duckdb(
    lake: store.Lake, predicate: pl.Expr, where: str
) -> None:
    frame = lake.lazy("speedups").filter(predicate).select("kernel_id", "baseline", "speedup")
    assert "FILTER" not in frame.explain()
    rows = lake.sql(f"SELECT kernel_id, baseline, speedup FROM speedups WHERE {where}").polars()
    assert_frame_equal(frame.collect(), rows, check_row_order=False)


def test_frames_of_one_lake_are_joined(lake: store.Lake) -> None:
    best = lake.lazy("speedups").group_by("kernel_id").agg(pl.col("speedup").max())
    joined = best.join(lake.lazy("kernels").select("kernel_id", "path"), on="kernel_id")
    rows = lake.sql(
        "SELECT kernel_id, max(speedup) AS speedup, path FROM speedups JOIN kernels "
        "USING (kernel_id) GROUP BY ALL"
    ).polars()
    for _ in range(3):
        assert_frame_equal(joined.collect(), rows, check_row_order=False)


def test_a_frame_stays_at_its_snapshot(tmp_path: Path) -> None:
    with store.open(copy_starter_lake(tmp_path / "lake"), at=1) as before:
        assert before.lazy("kernels").select(pl.len()).collect().item() == 0


def test_an_unknown_name_is_an_error_with_a_suggestion(lake: store.Lake) -> None:
    with pytest.raises(store.errors.UnknownName, match="speedup"):
        lake.lazy("speedup")
    with pytest.raises(store.errors.UnknownName):
        lake.lazy("kernels WHERE false")
