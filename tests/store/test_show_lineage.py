"""`store show KERNEL --lineage`: the exemplars and parents of a kernel, back to the first."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import builders as b
import commands
import pytest

import store
from store.cli import show
from store.dossier import pages
from store.errors import UnknownName

TASK, RUN = b.task(), b.run("contrastive", "training")
POLICY = b.policy("learner \x1b[31m")
FIRST, SECOND, THIRD, LAST, LONELY = (
    b.kernel(name) for name in ("first", "second", "third", "last", "lonely")
)
CHAIN = [b.kernel(f"link {number}") for number in range(40)]


@pytest.fixture(scope="module")
def lake(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return last, made from third and second, each from first, which repeats third in turn."""
    url = str(tmp_path_factory.mktemp("lineage") / "lake")
    shutil.copytree(empty_lake, url)
    run = {"run_id": RUN["run_id"]}
    second = b.generation(POLICY, TASK, SECOND, exemplars=[(FIRST, 1.5)], minute=1, **run)
    attempts = [
        second,
        b.generation(POLICY, TASK, THIRD, exemplars=[(FIRST, 1.5)], minute=2, **run),
        b.generation(POLICY, TASK, LAST, exemplars=[(SECOND, 2.0), (THIRD, 3.0)], minute=3, **run),
        # Written again, from another score and as a further turn of second.
        b.generation(POLICY, TASK, LAST, exemplars=[(THIRD, 3.25)], parent=second, minute=4, **run),
        # A loop: the first kernel was written again by an attempt that was shown the third.
        b.generation(POLICY, TASK, FIRST, exemplars=[(THIRD, 3.0)], minute=5, **run),
        b.generation(POLICY, TASK, LONELY, minute=6, **run),
        *(
            b.generation(POLICY, TASK, child, exemplars=[(made_from, 1.0)], minute=7)
            for child, made_from in zip(CHAIN[1:], CHAIN, strict=False)
        ),
    ]
    reward = {
        "run_id": RUN["run_id"], "generation_id": attempts[3]["generation_id"], "rule": "success",
        "rule_version": 1, "step": 12, "raw": 1.0,
    }  # fmt: skip
    found = b.finding(FIRST)
    tables = {
        "tasks": [TASK], "policies": [POLICY], "runs": [RUN],
        "kernels": [FIRST, SECOND, THIRD, LAST, LONELY, *CHAIN], "generations": attempts,
        "rewards": [reward], "findings": [found], "standings": [b.standing(found)],
    }  # fmt: skip
    with store.writer(url, author="tests") as writer:
        writer.append(tables, "generations of kernels")
    with store.open(url) as opened:
        yield opened


def test_every_edge_stands_once_at_its_smallest_distance(lake: store.Lake) -> None:
    names = {
        row["kernel_id"]: name
        for row, name in [(FIRST, "first"), (SECOND, "second"), (THIRD, "third"), (LAST, "last")]
    }
    edges = pages.find_ancestry(lake, LAST["kernel_id"][:10]).edges.to_pylist()
    found = [
        (row["distance"], names[row["child_kernel_id"]], row["relation"],
         names[row["parent_kernel_id"]], row["score"], row["attempts"])
        for row in edges
    ]  # fmt: skip
    assert sorted(found, key=str) == sorted(
        [
            (0, "last", "exemplar", "third", 3.25, 2),
            (0, "last", "exemplar", "second", 2.0, 1),
            (0, "last", "parent", "second", None, 1),
            (1, "second", "exemplar", "first", 1.5, 1),
            (1, "third", "exemplar", "first", 1.5, 1),
            (2, "first", "exemplar", "third", 3.0, 1),
        ],
        key=str,
    )
    newest = next(row for row in edges if row["score"] == 3.25)
    assert (newest["run"], newest["step"]) == ("contrastive", 12)
    assert {names[row["parent_kernel_id"]] for row in edges if row["quarantined"]} == {"first"}


def test_the_tree_unfolds_a_kernel_once_and_is_inert(
    lake: store.Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    show.print_page(pages.find_ancestry(lake, LAST["kernel_id"]), "table")
    text = capsys.readouterr().out
    third = THIRD["kernel_id"][:12]
    assert f"exemplar {third} shown as 3.25x, to learner" in text
    assert "contrastive, step 12, 2 attempts" in text
    assert text.count(f"exemplar {third}") == 2
    assert text.count("expanded elsewhere") == 3
    assert "quarantined" in text
    assert "\x1b" not in text


def test_a_long_line_of_ancestors_is_cut_on_paper_only(
    lake: store.Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    made = pages.find_ancestry(lake, CHAIN[-1]["kernel_id"])
    assert made.edges["parent_distance"].to_pylist() == list(range(1, 40))
    show.print_page(made, "table")
    text = capsys.readouterr().out
    assert text.count("exemplar") == show.SHOWN_LEVELS
    assert "further back" in text
    show.print_page(made, "json")
    assert len(json.loads(capsys.readouterr().out)["edges"]) == 39


def test_the_command_walks_too(lake: store.Lake) -> None:
    words = ["store", "show", LONELY["kernel_id"], "--lineage", "--lake", lake.url]
    lonely = commands.run(words, cwd=lake.location.root)
    assert lonely.returncode == 0, lonely.stderr
    assert "no parent, and no exemplar in its prompts" in lonely.stdout


def test_a_task_has_no_ancestors(lake: store.Lake) -> None:
    with pytest.raises(UnknownName, match='no kernel "level1/1"'):
        pages.find_ancestry(lake, "level1/1")
