"""Pages and tools show no speedup of a kernel that computes another function than the task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders as b
import explorer_lakes
import pytest

import store
from store.dossier import pages
from store.lake.sql_files import read_sql
from store.tools import list_attempts

HONEST, RENAMED = b.kernel("k2")["kernel_id"], b.kernel("k0")["kernel_id"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the explorer's lake after another device found the first kernel of a task renamed."""
    folder = explorer_lakes.write_lake(tmp_path_factory.mktemp("pages") / "lake")
    task, elsewhere = b.task("square"), b.device("elsewhere")
    verdict = b.evaluation(b.kernel("k0"), task, b.workload(task), elsewhere, equivalent=False)
    with store.writer(str(folder), author="tests") as writer:
        writer.append({"devices": [elsewhere], "evaluations": [verdict]}, "a verdict elsewhere")
    return folder


def speedups_of(rows: list[dict[str, Any]], column: str = "speedup") -> dict[str, bool]:
    """Return which of the two kernels have a speedup in rows."""
    wanted = {HONEST, RENAMED}
    return {row["kernel_id"]: bool(row[column]) for row in rows if row["kernel_id"] in wanted}


@pytest.mark.slow
def test_pages_of_the_explorer_show_no_speedup_of_another_function(lake: Path) -> None:
    run = b.run("contrastive", "training")["run_id"]
    with explorer_lakes.open_client(lake) as client:

        def read(address: str, panel: str) -> list[dict[str, Any]]:
            return client.get(address).json()["views"][panel]["rows"]

        ranking = read(f"/task/{b.task('square')['task_id']}.json", "ranking")
        assert speedups_of(ranking) == {HONEST: True}
        attempts = read(f"/run/{run}.json?tab=answers", "attempts")
        assert speedups_of(attempts) == {HONEST: True, RENAMED: False}
        for row in attempts:
            if row["kernel_id"] in (HONEST, RENAMED):
                outcome = read(f"/attempt/{row['generation_id']}.json", "outcome")
                assert any(one["speedup"] for one in outcome) == (row["kernel_id"] == HONEST)
        # The third kernel was made from the first one.
        page = f"/attempt/{next(r['generation_id'] for r in attempts if r['kernel_id'] == HONEST)}"
        assert speedups_of(read(f"{page}.json", "exemplars"), "speedup_now") == {RENAMED: False}


@pytest.mark.slow
def test_a_task_and_its_attempts_show_no_speedup_of_another_function(lake: Path) -> None:
    task_id = b.task("square")["task_id"]
    with store.open(str(lake)) as opened:
        page = pages.read_page(opened, "level1/1")
        measured = {row["kernel"] for row in page.sections["Measured"].to_pylist()}
        assert HONEST[:12] in measured
        assert RENAMED[:12] not in measured
        parameters = {"task_id": task_id, "session": None, "limit": 50}
        rows = opened.run(read_sql(list_attempts.__file__, "attempts"), parameters).rows()
        assert speedups_of(rows) == {HONEST: True, RENAMED: False}
