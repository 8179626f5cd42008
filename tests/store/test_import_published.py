"""Published figures become claims with their source, and a malformed file says where."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import store
from store.errors import ImportFailed
from store.importers import published
from store.importers.reading.pieces import run_import


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake with the built-in figures, imported twice."""
    with store.writer(str(tmp_path_factory.mktemp("published") / "lake"), author="tests") as writer:
        first = run_import(writer, published, None, published.Config())
        again = run_import(writer, published, None, published.Config())
        assert (first.files, again.files, again.skipped) == (1, 0, 1)
        with writer.reader() as opened:
            yield opened


def values(lake: store.Lake, where: str) -> dict[str, float]:
    found = lake.sql(f"SELECT metric, value FROM claims WHERE {where}").rows()
    assert len({one["metric"] for one in found}) == len(found)
    return {one["metric"]: one["value"] for one in found}


def test_figures_stand_under_their_source(lake: store.Lake) -> None:
    first = "source_revision = 'arXiv 2507.14111v1' AND gpu = 'A100'"
    assert values(lake, first) == {"mean_speedup": 17.7, "max_speedup": 449}
    readme = "source_revision = '51e8356' AND gpu = 'A100' AND baseline = 'eager'"
    assert values(lake, readme) == {
        "mean_speedup": 3.12,
        "max_speedup": 120,
        "p75_speedup": 2.25,
        "p50_speedup": 1.42,
        "p25_speedup": 1.17,
        "success": 249,
        "faster_than_1.01": 226,
    }
    july = "source = 'CUDA-L1 README' AND source_revision = '2025' AND gpu = 'H100'"
    assert values(lake, july) == {
        "mean_speedup": 2.39, "max_speedup": 81.9, "p75_speedup": 1.76, "p50_speedup": 1.32,
        "p25_speedup": 1.09, "success": 250,
    }  # fmt: skip
    # Two sources give DeepSeek-R1 different rows.
    r1 = lake.sql(
        "SELECT source, value FROM claims WHERE policy_id = 'deepseek-r1' "
        "AND metric = 'mean_speedup' ORDER BY value"
    ).rows()
    assert [(row["source"].split(",")[0], row["value"]) for row in r1] == [
        ("CUDA-L1 paper", 0.88), ("news on CUDA-L1", 1.41),
    ]  # fmt: skip
    cases = lake.sql("SELECT value FROM claims WHERE metric = 'case_speedup' ORDER BY 1").rows()
    assert [row["value"] for row in cases] == [64, 120, 126, 449]
    paper = "policy_id = 'llama-3.1-405b' AND source LIKE '%Table 5'"
    assert values(lake, paper) == {"mean_speedup": 0.23, "success": 68}
    evolve = values(lake, "policy_id = 'deepseek-r1-evolve'")
    assert (evolve["mean_speedup"], evolve["success"]) == (1.41, 248)


def test_every_claim_says_where_it_stands_and_whom_to_trust(lake: store.Lake) -> None:
    rows = lake.sql("FROM claims").rows()
    assert len(rows) > 80
    for row in rows:
        assert row["source_revision"]
        assert row["quote"].endswith(tuple(f"[{trust}]" for trust in published.TRUST))
        assert not row["quote"].startswith("None")
        assert row["task_id"] is None
        assert row["kernel_id"] is None
        assert row["speedup"] is None


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ("- {gpu: A100, average: 2}", 'claims 0: "average" is not known'),
        ("- {gpu: A100, mean: fast}", "claims 0: mean is str 'fast', not a number"),
        ("- {gpu: A100, mean: .inf}", "claims 0: mean is float inf, not a number"),
        ("- 3", "claims 0: it is int 3, not an object"),
        ("{a: 1}", "not a list"),
        ("[", "is not YAML"),
    ],
)
def test_a_malformed_file_says_where(
    lake: store.Lake, tmp_path: Path, changes: str, says: str
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "sources:\n- source: me\n  revision: '1'\n  trust: primary\n  claims:\n    "
        + changes
        + "\n"
    )
    with pytest.raises(ImportFailed) as raised:
        list(published.read(file, published.Config(), lake))
    assert says in str(raised.value)


def test_second_hand_figures_are_left_out_on_request(lake: store.Lake) -> None:
    (bundle,) = published.read(None, published.Config(trust="primary"), lake)
    quotes = [claim["quote"] for claim in bundle.tables["claims"]]
    assert quotes
    assert all(quote.endswith("[primary]") for quote in quotes)


def test_figures_of_ones_own(writer: store.Writer, tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "sources:\n- {source: me, revision: '1', trust: primary, published_on: 2026-01-02,"
        " claims: [{gpu: H200, baseline: eager, mean: 2, at: page 1}]}\n"
    )
    run_import(writer, published, file, published.Config())
    with writer.reader() as opened:
        (row,) = opened.sql("SELECT value, quote, published_on::VARCHAR AS day FROM claims").rows()
    expected: dict[str, Any] = {"value": 2.0, "quote": "page 1 [primary]", "day": "2026-01-02"}
    assert row == expected
