"""Figures of a release count once in a lake that imported it and pulled it from another lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hub.server import HubServer
from panels import ask

import store
from store.headlines import story
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish
from store.hub.pull import pull
from store.importers import cuda_l1, published
from store.importers.reading.pieces import run_import

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
TASK = """class Model:
    name = "{name}"

def get_inputs():
    return []

def get_init_inputs():
    return []
"""
RELEASE: list[dict[str, Any]] = [
    {
        "level_id": 1, "task_id": number, "ref_code": TASK.format(name=name),
        "custom_code": f"class ModelNew: # {name}\n", "score_default": speedup,
        "cuda_graph_code": f"class Model: # {name}\n", "score_cuda_graph": speedup / 2,
    }
    for number, (name, speedup) in enumerate((("relu", 2.0), ("sum", 4.0), ("tanh", 9.0)), start=1)
]  # fmt: skip
TABLES = (
    "claimed", "claims_checked", "claims_points", "claims_fallen", "published_stages",
    "case_studies",
)  # fmt: skip
COUNTS = """
SELECT
    (SELECT count(*) FROM claims WHERE task_id IS NOT NULL) AS stored,
    (SELECT count(*) FROM current_claims WHERE task_id IS NOT NULL) AS current,
    (SELECT count(*) FROM claimed_speedups) AS speedups,
    (SELECT count(*) FROM claimed_kernels WHERE implied) AS implied,
    (SELECT count(*) FROM current_claims WHERE task_id IS NULL) AS aggregates
"""


def import_release(url: str, folder: Path, license: str) -> str:
    """Make a lake with the published figures and the release, under a license; return its URL."""
    file = folder / "h100.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in RELEASE))
    with store.writer(url, author="tests") as writer:
        run_import(writer, published, None, published.Config())
        options = cuda_l1.Config(source_revision="51e8356", license=license)
        run_import(writer, cuda_l1, file, options)
    return url


def read_figures(url: str) -> tuple[dict[str, int], list[Any], list[Any]]:
    """Return counts of claims, the steps of the headline, and the report's tables of claims."""
    with store.open(url) as lake:
        [counted] = lake.sql(COUNTS).rows()
        steps = [step.rows.to_pylist() for step in story.read_story(lake).steps]
        tables = [ask(lake, f"report/{name}") for name in TABLES]
    return counted, steps, tables


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), [("GPL-3.0-only", "MIT"), ("MIT", "GPL-3.0-only")])
def test_a_release_that_both_lakes_imported_under_another_license_counts_once(
    ours: str, theirs: str, server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    mine = import_release(str(tmp_path / "mine"), tmp_path, ours)
    other = import_release(str(tmp_path / "theirs"), tmp_path, theirs)
    publish(other, "lab-one/kernels", Options(tag="v1"), hub=hub)
    before, headline, report = read_figures(mine)
    assert (before["stored"], before["current"], before["speedups"], before["implied"]) == (
        6, 6, 6, 3,
    )  # fmt: skip
    assert pull(mine, "lab-one/kernels", hub=hub).conflicts == []
    after, headline_after, report_after = read_figures(mine)
    # Both statements are kept, each with its license; views take one of the two.
    assert after == before | {"stored": 12}
    assert headline_after == headline
    assert report_after == report


@pytest.mark.slow
def test_a_lake_that_pulls_both_counts_the_release_once(
    server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    last = str(tmp_path / "last")
    for repo, license in (("lab-one/kernels", "GPL-3.0-only"), ("lab-two/kernels", "MIT")):
        url = import_release(str(tmp_path / license), tmp_path, license)
        publish(url, repo, Options(tag="v1"), hub=hub)
        pull(last, repo, hub=hub)
    one, headline, report = read_figures(str(tmp_path / "MIT"))
    both, headline_of_both, report_of_both = read_figures(last)
    assert both == one | {"stored": 12}
    assert headline_of_both == headline
    assert report_of_both == report
