"""GPU MODE's export of leaderboard submissions, in the columns of kernelbot's exporter."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_sources import count, import_source, kernel, query

import store
from store.errors import RowsRejected
from store.hub import licenses
from store.importers import kernelbot
from store.importers.reading import sources

SCHEMA = pa.schema(
    [
        ("submission_id", pa.int64()),
        ("leaderboard_id", pa.int64()),
        ("problem_name", pa.large_string()),
        ("user_id", pa.large_string()),
        ("user_name", pa.large_string()),
        ("code_id", pa.int64()),
        ("file_name", pa.large_string()),
        ("submission_time", pa.timestamp("us", tz="UTC")),
        ("status", pa.large_string()),
        ("score", pa.float64()),
        ("passed", pa.bool_()),
        ("mode", pa.large_string()),
        ("runner", pa.large_string()),
        ("code", pa.large_string()),
    ]
)


def submission(number: int = 1, **changes: Any) -> dict[str, Any]:
    """Return one row of the export."""
    return {
        "submission_id": number,
        "leaderboard_id": 7,
        "problem_name": "trimul",
        "user_id": "4711",
        "user_name": "a person's name",
        "code_id": number,
        "file_name": "submission.py",
        "submission_time": datetime(2026, 2, 1, tzinfo=UTC),
        "status": "succeeded",
        "score": 0.002,
        "passed": True,
        "mode": "leaderboard",
        "runner": "B200",
        "code": kernel(number),
    } | changes


def write_export(file: Path, *rows: dict[str, Any], schema: pa.Schema = SCHEMA) -> Path:
    """Write rows as kernelbot writes them."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), file)
    return file


def test_submissions_become_attempts_and_claims_under_their_license(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    failed = submission(3, score=None, passed=False, status="failed")
    file = write_export(
        tmp_path / "submissions.parquet",
        submission(1),
        submission(1, runner="H100", score=0.004),
        submission(2, user_id="42", code=kernel(1)),
        failed,
        submission(4, code=None),
    )
    import_source(lake, kernelbot, file)
    attempts = query(lake, "SELECT problem, task_id, license, created_at FROM generations")
    assert (
        attempts == [("trimul", None, kernelbot.RECIPROCITY, datetime(2026, 2, 1, tzinfo=UTC))] * 3
    )
    claims = query(
        lake, "SELECT metric, gpu, value, problem FROM claims ORDER BY metric, gpu, value"
    )
    assert claims == [
        ("correct", "B200", 0.0, "trimul"),
        ("correct", "B200", 1.0, "trimul"),
        ("correct", "B200", 1.0, "trimul"),
        ("correct", "H100", 1.0, "trimul"),
        ("latency_ms", "B200", 2.0, "trimul"),
        ("latency_ms", "B200", 2.0, "trimul"),
        ("latency_ms", "H100", 4.0, "trimul"),
    ]
    assert count(lake, "kernels") == 2
    assert count(lake, "timings") == count(lake, "evaluations") == 0


def test_no_name_of_a_person_is_stored(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    import_source(lake, kernelbot, write_export(tmp_path / "submissions.parquet", submission()))
    [(policy,)] = query(lake, "SELECT policy_id FROM policies")
    assert policy.startswith("kernelbot/")
    assert "4711" not in policy
    assert "person" not in str(query(lake, "FROM generations") + query(lake, "FROM claims"))


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("license", "wrong"), [(kernelbot.RECIPROCITY, 3), ("MIT", 0)])
def test_rows_under_the_new_license_are_not_published(
    tmp_path: Path, license: str, wrong: int
) -> None:
    lake = tmp_path / "lake"
    file = write_export(tmp_path / "submissions.parquet", submission())
    import_source(lake, kernelbot, file, license=license)
    with store.open(str(lake)) as opened:
        found = licenses.survey(opened, own=None).wrong
    refused = {row["table"] for row in found.to_pylist()}
    assert refused == ({"kernels", "generations", "claims"} if wrong else set())
    if wrong:
        with pytest.raises(RowsRejected, match="a license that allows redistribution"):
            licenses.refuse(found)


@pytest.mark.slow
def test_an_interrupted_import_resumes_and_a_repeated_one_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = tmp_path / "lake"
    monkeypatch.setattr("store.importers.reading.pieces.PIECE_RECORDS", 2)
    file = write_export(tmp_path / "s.parquet", *(submission(n) for n in range(1, 6)))
    with store.writer(str(lake), author="tests") as writer, writer.reader() as reader:
        first = next(kernelbot.read(file, kernelbot.Config(), reader))
        writer.load(first.tables, first.message, bundle_id=first.bundle_id)
    rest = import_source(lake, kernelbot, file)
    assert (rest.files, rest.skipped) == (2, 1)
    assert count(lake, "generations") == 5
    again = import_source(lake, kernelbot, file)
    assert (again.files, again.skipped, again.rows) == (0, 3, {})


@pytest.mark.slow
def test_a_malformed_row_at_the_end_costs_that_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake = tmp_path / "lake"
    monkeypatch.setattr("store.importers.reading.pieces.PIECE_RECORDS", 2)
    rows = [submission(n) for n in range(1, 5)]
    file = write_export(tmp_path / "s.parquet", *rows, submission(5, code="a\0b"))
    assert import_source(lake, kernelbot, file).left_out == 1
    assert "s.parquet, row 4 is left out: code holds a zero byte" in caplog.text
    assert count(lake, "generations") == 4


def test_the_export_is_recognized_by_its_columns(tmp_path: Path) -> None:
    file = write_export(tmp_path / "data" / "s.parquet", submission())
    assert list(sources.detect(file)) == ["kernelbot"]
    assert list(sources.detect(tmp_path)) == ["kernelbot"]
