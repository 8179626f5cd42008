"""docs/questions.md: each question's query gives the rows on the page.

`python tests/store/test_questions.py` writes the rows anew.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import builders as b
import pytest
from new_lakes import copy_starter_lake

import store
from lab.merge import merge
from store.commandline import display

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "questions.md"
QUESTION = re.compile(
    r"^## (\d+)\. .*?^```sql\n(.*?)^```\n(?:\n^```csv\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL
)
WITHOUT_RUN = (3, 5, 6)
"""Questions about versions of the judge, claims and unsolved tasks, of which the run has none."""


def fill(folder: Path) -> tuple[str, str]:
    """Return a lake of the run and the starter suite, and one of the rows that both lack."""
    run, story = str(folder / "run"), str(folder / "story")
    merge(copy_starter_lake(run), DOCS / "runs" / "history-1" / "tables")
    h200 = b.device("H200", kind="cuda")
    tasks = [b.task(name) for name in ("square", "cube", "root")]
    sizes = [b.workload(task) for task in tasks]
    kernels = [b.kernel(name) for name in ("holds", "slower", "wrong")]
    speeds = (2.0, 1.5, None)
    old = [
        b.evaluation(kernel, task, size, h200, version=9, minute=1, evaluator="judge")
        for kernel, task, size in zip(kernels, tasks, sizes, strict=True)
    ]
    new = [
        b.evaluation(
            kernel, task, size, h200, version=10, minute=2, evaluator="judge",
            **({} if speed else {"status": "incorrect", "reason": "incorrect_numerical"}),
        )
        for kernel, task, size, speed in zip(kernels, tasks, sizes, speeds, strict=True)
    ]  # fmt: skip
    with store.writer(story, author="tests") as writer:
        writer.append(
            {
                "tasks": tasks,
                "task_labels": [
                    b.label(task, f"level1/{place}") for place, task in enumerate(tasks, 1)
                ],
                "workloads": sizes,
                "devices": [h200],
                "kernels": kernels,
                "evaluations": [*old, *new],
                "timings": [
                    arm
                    for row, speed in zip(new, speeds, strict=True)
                    if speed
                    for arm in b.session(row, [1.0] * 9, eager=[speed] * 9)
                ],
                "claims": [
                    b.claim(task, kernel, speedup, gpu="A100")
                    for task, kernel, speedup in zip(tasks, kernels, (2.1, 3.0, 4.0), strict=True)
                ],
            },
            "story",
        )
    return run, story


def ask(lakes: tuple[store.Lake, store.Lake], number: int, sql: str, folder: Path) -> str:
    answer = folder / "answer.csv"
    display.write_rows(lakes[number in WITHOUT_RUN].sql(sql).arrow(), "csv", answer)
    return answer.read_text("utf-8")


@pytest.fixture(scope="module")
def lakes(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[store.Lake, store.Lake]]:
    run, story = fill(tmp_path_factory.mktemp("questions"))
    with store.open(run) as first, store.open(story) as second:
        yield first, second


def test_the_page_has_fifteen_questions() -> None:
    found = [int(one[1]) for one in QUESTION.finditer(PAGE.read_text("utf-8"))]
    assert found == list(range(1, 16))


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("question", QUESTION.findall(PAGE.read_text("utf-8")), ids=lambda q: q[0])
def test_a_question_has_its_answer(
    question: tuple[str, str, str], lakes: tuple[store.Lake, store.Lake], tmp_path: Path
) -> None:
    number, sql, rows = question
    assert rows.count("\n") > 1
    assert ask(lakes, int(number), sql, tmp_path) == rows


def write_page() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, story = (store.open(url) for url in fill(Path(folder)))

        def add_rows(found: re.Match[str]) -> str:
            asked = found[0].partition("\n```csv\n")[0].rstrip("\n")
            rows = ask((run, story), int(found[1]), found[2], Path(folder))
            return f"{asked}\n\n```csv\n{rows}```\n"

        PAGE.write_text(QUESTION.sub(add_rows, PAGE.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    write_page()
