"""Queries in docs/ give the published answers on the lake of a run, or those worked out by hand."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from audited_release import write_lake
from builders import START

import store
from lab.merge import merge
from store.commandline import display
from store.importers import cuda_l1, measured, published
from store.importers.reading.pieces import run_import

DOCS = Path(__file__).parents[2] / "docs"
RUN = DOCS / "runs" / "history-1"
QUERIES = [str(file.relative_to(DOCS)) for file in sorted(DOCS.rglob("*.sql"))]
PUBLISHED = [name for name in QUERIES if (RUN / Path(name).with_suffix(".csv").name).exists()]
AUDITED: dict[str, list[tuple[object, ...]]] = {
    "audit/device_code.sql": [
        ("A100", 2, 1, 1, 0.5, 0, 0, 0, 0),
        ("H100", 3, 1, 2, 0.67, 1, 1, 0, 0),
    ],
    "audit/distinct_texts.sql": [
        (5, 4, 1),
    ],
    "audit/headline_means.sql": [
        ("A100", 2, 4.0, 2, 4.0, 3.0, None, 3.464, 4.0, 6.0, 1.0),
        ("H100", 3, 4.667, 3, 4.667, 4.667, 9.5, 4.0, 4.0, 8.0, 1.0),
        ("L40", 0, None, 1, 64.0, 22.0, None, None, None, 64.0, 1.0),
    ],
    "audit/orphan_scores.sql": [
        ("L40", 1, 64.0, 64.0, "level3/41"),
    ],
    "audit/same_as_a100.sql": [
        ("H100", 1, 2),
    ],
    "audit/scored_but_broken.sql": [
        ("level3/35", "A100", 2.0, "7cd7f8581954"),
    ],
    "audit/top_scores.sql": [
        ("A100", "level1/1", 6.0, True, ["fusion"]),
        ("A100", "level3/35", 2.0, False, []),
        ("H100", "level1/1", 8.0, True, ["fusion"]),
        ("H100", "level3/35", 4.0, False, []),
        ("H100", "level3/41", 2.0, False, []),
        ("L40", "level3/41", 64.0, None, None),
    ],
    "h200/agreement.sql": [
        ("torch_default", 3, 3, None),
        ("fp32_strict", 1, 0, "level1/1"),
        ("allow_tf32", 1, 1, None),
    ],
    "h200/claims.sql": [
        ("computes another function than its task", 1),
        ("falls: not correct", 1),
        ("falls: slower than claimed", 1),
    ],
    "h200/clocks.sql": [
        ("H100", "torch_default", "gpu", "compile", 1, 0, 4.0, 4.0),
        ("H100", "torch_default", "gpu", "eager", 1, 0, 2.0, 2.0),
        ("H100", "torch_default", "gpu", "fastest", 1, 0, 2.0, 2.0),
        ("H200", "fp32_strict", "gpu", "compile", 1, 0, 2.0, 2.0),
        ("H200", "fp32_strict", "gpu", "eager", 1, 0, 4.0, 4.0),
        ("H200", "fp32_strict", "gpu", "fastest", 1, 0, 2.0, 2.0),
        ("H200", "torch_default", "gpu", "compile", 1, 0, 2.0, 2.0),
        ("H200", "torch_default", "gpu", "eager", 1, 0, 4.472, 4.472),
        ("H200", "torch_default", "gpu", "fastest", 1, 0, 2.0, 2.0),
    ],
    "h200/devices.sql": [
        ("torch_default", "gpu", 1, 2.236, 2.236, 2.236),
    ],
    "h200/equivalence.sql": [
        ("H200", 1, 1, 0, 0, 1, 4.472, 1, 4.472),
        ("H200", 3, 1, 1, 0, 0, None, 1, 3.0),
        ("H100", 1, 1, 0, 0, 1, 2.0, 1, 2.0),
        ("H100", 3, 1, 1, 0, 0, None, 1, 3.0),
    ],
    "h200/failures.sql": [
        ("H100", "fp32_strict", "incorrect_numerical", 1, 0, "tf32", 1),
        ("H100", "torch_default", "incorrect_numerical", 1, 1, "tf32", 1),
        ("H200", "torch_default", "incorrect_numerical", 1, 1, "tf32", 1),
    ],
    "h200/falls.sql": [
        ("incorrect_numerical", 1, 1),
        ("slower", 1, 0),
    ],
    "h200/fastest.sql": [
        ("H200", "level1/1", 4.47, 2.0, "compile", None),
        ("H100", "level1/1", 2.0, 2.0, "eager", None),
    ],
    "h200/levels.sql": [
        ("H200", "torch_default", 1, 1, 1, 0, 1, 4.472, 4.472, 4.472, 2.0, 2.0, 2.0),
        ("H200", "torch_default", 3, 2, 1, 1, 0, None, None, None, None, None, None),
        ("H200", "fp32_strict", 1, 1, 1, 0, 1, 4.0, 4.0, 4.0, 2.0, 2.0, 2.0),
        ("H100", "torch_default", 1, 1, 1, 0, 1, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0),
        ("H100", "torch_default", 3, 2, 1, 1, 0, None, None, None, None, None, None),
        ("H100", "fp32_strict", 1, 1, 0, 0, 0, None, None, None, None, None, None),
    ],
    "h200/parts.sql": [
        ("timing", 4.67, 4.0),
        ("waiting", 0.67, None),
        ("robustness", 0.33, None),
        ("whole (median)", 10.0, 10.0),
        ("whole, reused (median)", 10.0, None),
    ],
    "h200/recurrent.sql": [
        ("level3/35", "H200", "torch_default", "gpu", 4.0, 3.0, 2.9, 3.1, True),
        ("level3/35", "H100", "torch_default", "gpu", 4.0, 3.0, 2.9, 3.1, True),
        ("level3/41", "H200", "allow_tf32", "gpu", 2.0, 1.5, 1.45, 1.55, True),
        ("level3/41", "H100", "allow_tf32", "gpu", 2.0, 30.0, 29.02, 31.02, False),
    ],
    "h200/repeats.sql": [
        ("H200", "torch_default", "gpu", 1, 1, 1.25, 1.25),
    ],
    "h200/runs.sql": [
        ("H200", START.date(), 7, 4, 1, 180.0, 0.03, 2.0, 1.0),
        ("H100", START.date(), 5, 3, 0, 180.0, None, None, None),
    ],
    "h200/tf32.sql": [
        ("tf32", 1, 1, 1, 0, 0, 1, 1.5),
    ],
    "h200/unconfirmed.sql": [
        ("H100", "allow_tf32", "level3/41", 2.0, [30.0]),
    ],
    "h200/without_compile.sql": [
        ("H200", "torch_default", 2, 1, 0),
        ("H200", "allow_tf32", 1, 1, 0),
        ("H100", "torch_default", 1, 1, 0),
        ("H100", "allow_tf32", 1, 1, 0),
    ],
}  # fmt: skip
"""Rows of the queries about an audited release, by hand over `audited_release.write_lake`."""
OTHERS = {
    "h200/judge-13/again.sql": 0,
    "h200/judge-13/shapes.sql": 1,
    "learn/judged-here.sql": 0,
    "runs/arms.sql": 0,
    "runs/loop.sql": 20,
    "runs/stages.sql": 4,
    "runs/steps.sql": 0,
    "runs/training_answers.sql": 0,
    "runs/training_curves.sql": 0,
}
"""Rows that queries without a published answer give on the lake of the run: 0 for those about
training and version 13 of the judge, which the run has none of. `test_runs_sql` has rows for the
former."""
SLOW = "runs/uses.sql"
"""It measures the distance of each answer to each exemplar, which takes seconds."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return the lake of a run: 12,354 attempts and 2,766 verdicts."""
    url = str(tmp_path_factory.mktemp("run") / "lake")
    assert merge(url, RUN / "tables")["generations"] == 12_354
    with store.open(url) as opened:
        yield opened


@pytest.mark.repeats(run=7)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name == SLOW else ()) for name in PUBLISHED],
)
def test_a_query_gives_the_published_answer(name: str, lake: store.Lake, tmp_path: Path) -> None:
    answer = tmp_path / "answer.csv"
    display.write_rows(lake.sql((DOCS / name).read_text("utf-8")).arrow(), "csv", answer)
    published = RUN / Path(name).with_suffix(".csv").name
    assert answer.read_text("utf-8") == published.read_text("utf-8")


@pytest.mark.slow
def test_every_other_query_runs(lake: store.Lake) -> None:
    rows = {
        name: lake.sql((DOCS / name).read_text("utf-8")).arrow().num_rows
        for name in QUERIES
        if name not in PUBLISHED and name not in AUDITED
    }
    assert rows == OTHERS


@pytest.mark.slow
def test_queries_about_a_release_give_what_is_worked_out_by_hand(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with store.open(write_lake(tmp_path_factory.mktemp("release") / "lake")) as release:
        found = {
            name: [
                tuple(row.values()) for row in release.sql((DOCS / name).read_text("utf-8")).rows()
            ]
            for name in AUDITED
        }
    assert found == AUDITED


def test_the_readme_has_the_outcomes_of_the_published_claims() -> None:
    """docs/h200/claims.csv has the answer of claims.sql; README and the page have its numbers."""
    with (DOCS / "h200" / "claims.csv").open(encoding="utf-8") as file:
        claims = {row["outcome"]: int(row["claims"]) for row in csv.DictReader(file)}
    wrong, slower = claims["falls: not correct"], claims["falls: slower than claimed"]
    readme = " ".join((DOCS.parent / "README.md").read_text("utf-8").replace("*", "").split())
    for sentence in (
        f"CUDA-L1 published {sum(claims.values())} speedups for the H100.",
        f"Measured again on H100s, {claims['holds']} of them hold,",
        f"and {claims['exceeded: faster than claimed']} kernels are faster than claimed.",
        f"{wrong} kernels are not correct, {slower} are slower than claimed,",
        f"{claims['computes another function than its task']} compute a different function,",
        f"{claims['on a task that a trivial answer passes']} are for tasks that a trivial answer",
        f"and {claims['could not be measured']} could not be measured",
    ):
        assert sentence in readme
    page = (DOCS / "h200" / "README.md").read_text("utf-8")
    assert {
        found[1]: int(found[2]) for found in re.finditer(r"\| ([^|]+) \| (\d+) \|\n", page)
    }.items() >= claims.items()


@pytest.mark.slow
def test_the_release_gives_the_outcomes_of_the_published_claims(tmp_path: Path) -> None:
    named = os.environ.get("FLYWHEEL_CUDA_L1")
    folder = Path(named) if named else DOCS.parents[1] / "shared" / "data" / "cuda-l1"
    if not folder.is_dir():
        pytest.skip("the CUDA-L1 release is not on disk; name its folder in FLYWHEEL_CUDA_L1")
    url = str(tmp_path / "lake")
    with store.writer(url, author="tests") as writer:
        run_import(writer, cuda_l1, folder, cuda_l1.Config(source_revision="51e8356"))
        run_import(writer, published, None, published.Config())
        for name in ("weak-tasks", "h100", "h200"):
            run_import(writer, measured, DOCS / name, measured.Config(own=True))
    answer = tmp_path / "claims.csv"
    with store.open(url) as opened:
        sql = (DOCS / "h200" / "claims.sql").read_text("utf-8")
        display.write_rows(opened.sql(sql).arrow(), "csv", answer)
    assert answer.read_text("utf-8") == (DOCS / "h200" / "claims.csv").read_text("utf-8")
