"""Copies with other comments, whitespace or paths: of kernels that are out, and of test tasks."""

from __future__ import annotations

import builders
import pyarrow as pa
import pytest
from pipeline_lakes import Rows, code_of

import store
from evaluators.audit import sweep
from pipelines import contrastive_batch, rl_prompts, sft
from pipelines.contract import Request, Selection
from pipelines.datasets import materialize
from pipelines.selection.rules import apply_rules
from store.errors import LeakageFound

CHEAT = code_of("relu", "cheat").replace("return", "y = torch.zeros_like(x)\n        return")
EDITS = {
    "comment": CHEAT + "# faster\n",
    "docstring": CHEAT.replace("(self, x):\n", '(self, x):\n        """Faster."""\n'),
    "spacing": CHEAT.replace("forward(self, x)", "forward( self,x )"),
    "blank lines": CHEAT.replace("\n\n\n", "\n\n\n\n"),
    "path": CHEAT,
}
"""Texts with the tokens of the cheat."""
OTHERS = {
    "one line more": CHEAT.replace("return", "x = x + 0\n        return"),
    "without the cheat": code_of("relu", "cheat"),
}
"""Texts that resemble the cheat."""


def read_signatures(rows: Rows) -> None:
    """Replace the features of all kernels by those of their texts."""
    schema = store.catalog.load().table("kernels").arrow_schema
    names = ("kernel_id", "code", "path", "other_files")
    schema = pa.schema([schema.field(name) for name in names])
    texts = [{name: kernel.get(name) for name in names} for kernel in rows.tables["kernels"]]
    found = store.extract_features(pa.Table.from_pylist(texts, schema=schema)).to_pylist()
    rows.tables["kernel_features"] = [row | {"created_at": builders.START} for row in found]


def add_copies(rows: Rows) -> tuple[str, dict[str, str]]:
    """Add a cheat, its copies, and kernels that resemble it; return their ids by name."""
    relu = rows.task("relu", family="pointwise", split="train")
    kernels = {"cheat": rows.kernel(relu, CHEAT)}
    for name, code in (EDITS | OTHERS).items():
        path = {"path": "other.py"} if name == "path" else {}
        kernels[name] = rows.kernel(relu, code, **path)
    for place, kernel in enumerate(kernels.values()):
        rows.add_session(relu, kernel, 2.0 + place)
    read_signatures(rows)
    return relu, kernels


def list_withheld(lake: store.Lake) -> dict[str, str]:
    """Return the reasons of the view withheld by kernel."""
    return {row["kernel_id"]: row["reason"] for row in lake.sql("FROM withheld").rows()}


def list_shown(rows: list[builders.Row]) -> set[str]:
    """Return the kernels that rows of a dataset show or answer with."""
    shown = {kernel for row in rows for kernel in row.get("exemplar_kernel_ids") or ()}
    return shown | {row["kernel_id"] for row in rows if row.get("kernel_id")}


@pytest.mark.slow
def test_copies_of_a_quarantined_kernel_reach_no_dataset(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    _, kernels = add_copies(rows)
    rows.quarantine(kernels["cheat"])
    for row in rows.tables["kernel_features"]:  # the cheat was read by an earlier extractor
        row["extractor_version"] -= row["kernel_id"] == kernels["cheat"]
    lake = lake_of(rows)
    reason = "copy of a quarantined kernel"
    out = {kernels["cheat"]: "quarantined"} | {kernels[name]: reason for name in EDITS}
    assert list_withheld(lake) == out
    ranked = {row["kernel_id"] for row in lake.sql("FROM rankable_sessions WHERE ranked").rows()}
    assert {row["kernel_id"] for row in lake.sql("FROM quarantined").rows()} == set(out)
    assert ranked == {kernels[name] for name in OTHERS}
    job = make_job(lake, contrastive_batch, per_task=30)
    shown = list_shown(rows_of(job))
    assert shown == {kernels[name] for name in OTHERS}
    assert list_shown(rows_of(make_job(lake, sft))) <= shown
    dropped = materialize.preview_dataset(job).dropped
    assert dropped[f"kernel: {reason}"] == len(EDITS)


@pytest.mark.slow
def test_an_audit_lists_datasets_that_contain_a_copy(rows: Rows, lake_of) -> None:
    relu, kernels = add_copies(rows)
    rows.quarantine(kernels["cheat"])
    run = rows.add("runs", builders.run("pipeline"))
    dataset = rows.add("datasets", builders.dataset(run))
    shown = [rows.known[kernels[name]] for name in ("comment", "without the cheat")]
    rows.add("dataset_rows", builders.dataset_row(dataset, rows.known[relu], shown))
    found = sweep.find_marked_datasets(lake_of(rows)).to_pylist()
    assert [(row["kernels"], row["quarantined"], row["classes"]) for row in found] == [(1, 1, "")]


@pytest.mark.slow
def test_a_copy_leaves_quarantine_alone_or_with_the_original(rows: Rows, lake_of) -> None:
    _, kernels = add_copies(rows)
    finding = builders.finding(rows.known[kernels["cheat"]])
    rows.add("findings", finding)
    rows.add("standings", builders.standing(finding))
    lake = lake_of(rows)
    with store.writer(lake.url, author="tests") as writer:
        own = builders.finding(rows.known[kernels["comment"]], "reported", confidence=1.0)
        dismissed = {"findings": [own], "standings": [builders.standing(own, "dismissed", 1)]}
        writer.append(dismissed, "a copy that a person clears")
        with store.open(lake.url) as later:
            held = {row["kernel_id"] for row in later.sql("FROM quarantined").rows()}
        assert held == {kernels["cheat"]} | {kernels[name] for name in EDITS} - {kernels["comment"]}
        standing = builders.standing(finding, "dismissed", 2)
        writer.append({"standings": [standing]}, "the original is cleared")
        with store.open(lake.url) as later:
            assert later.sql("FROM quarantined").rows() == []


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("sign", ["suspected", "rejected"])
def test_a_dismissal_of_the_original_or_of_a_copy_lets_copies_back(
    sign: str, rows: Rows, lake_of
) -> None:
    relu, kernels = add_copies(rows)
    finding = builders.finding(rows.known[kernels["cheat"]], confidence=0.9)
    rows.add("findings", finding)
    if sign == "rejected":
        rows.add_verdict(relu, kernels["cheat"], "rejected", reason="lazy_output")
    lake = lake_of(rows)
    copies = {kernels[name]: f"copy of a {sign} kernel" for name in EDITS}
    assert list_withheld(lake) == copies | {kernels["cheat"]: sign}
    with store.writer(lake.url, author="tests") as writer:
        own = builders.finding(rows.known[kernels["comment"]], "reported", confidence=1.0)
        dismissed = {"findings": [own], "standings": [builders.standing(own, "dismissed", 1)]}
        writer.append(dismissed, "a copy that a person clears")
        with store.open(lake.url) as later:
            assert kernels["comment"] not in list_withheld(later)
            assert len(list_withheld(later)) == len(EDITS)
        standing = builders.standing(finding, "dismissed", 2)
        writer.append({"standings": [standing]}, "the original is cleared")
        with store.open(lake.url) as later:
            assert list_withheld(later) == {}


REFERENCE_EDITS = {
    "comment": lambda code: code + "# copy\n",
    "docstring": lambda code: code.replace("(self, x):\n", '(self, x):\n        """A scan."""\n'),
    "bare string": lambda code: code.replace("N = 1024\n", "'A \"scan\" of x'  # copy\nN = 1024\n"),
    "docstring of parts": lambda code: 'r"A \\"scan\\"" \'of x\'; ' + code,
    "whitespace": lambda code: code.replace("\n\n\n", "\n\n").replace("N = 1024", "N  =  1024"),
}
"""Edits that keep a task's code."""


def add_task(rows: Rows, name: str, code: str, split: str | None = None) -> str:
    """Add a task with this text, two scored kernels, and a label if it has a split."""
    task = builders.task(name, task_id=store.ids.task_id(code), code=code, license="MIT")
    rows.known[task["task_id"]] = rows.add("tasks", task)
    rows.workload(task["task_id"])
    if split is not None:
        rows.add("task_labels", builders.label(task, name, family=name))
        rows.add("splits", builders.split(name, split))
    for place in range(2):
        kernel = rows.kernel(task["task_id"], code_of(name, str(place)))
        rows.add_session(task["task_id"], kernel, 1.5 + place)
    return task["task_id"]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("split", [None, "train"])
@pytest.mark.parametrize("edit", REFERENCE_EDITS)
def test_a_copy_of_a_test_task_is_no_task_to_train_on(
    edit: str, split: str | None, rows: Rows, lake_of, make_job, rows_of
) -> None:
    held_out = rows.task("cumsum", family="scan", split="test")
    copy = add_task(rows, "alias", REFERENCE_EDITS[edit](rows.known[held_out]["code"]), split)
    own = add_task(rows, "other", rows.known[held_out]["code"].replace("cumsum", "exp"))
    lake = lake_of(rows)
    found = lake.sql("SELECT task_id, copy_of FROM test_tasks ORDER BY copy_of NULLS FIRST").rows()
    assert found == [
        {"task_id": held_out, "copy_of": None},
        {"task_id": copy, "copy_of": held_out},
    ]
    # Evaluation asks for the test task once.
    job = make_job(lake, rl_prompts, request=Request(purpose="eval"))
    assert {row["task_id"] for row in rows_of(job)} == {held_out}
    for pipeline in (contrastive_batch, sft, rl_prompts):
        assert {row["task_id"] for row in rows_of(make_job(lake, pipeline))} == {own}, pipeline
    dropped = materialize.preview_dataset(make_job(lake, rl_prompts)).dropped
    assert dropped == {"task: copy of a test task": 1, "task: test split": 1}


@pytest.mark.slow
def test_rows_for_copies_of_test_tasks_are_an_error(rows: Rows, lake_of) -> None:
    held_out = rows.task("cumsum", family="scan", split="test")
    copy = add_task(rows, "alias", rows.known[held_out]["code"] + "# copy\n", "train")
    picked = Selection(rows=pa.table({"task_id": [copy], "kernel_ids": [[]]}))
    with pytest.raises(LeakageFound, match="alias"):
        apply_rules(lake_of(rows), picked, Request())


@pytest.mark.slow
def test_kernels_of_a_copy_of_a_test_task_are_contaminated(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    held_out = rows.task("cumsum", family="scan", split="test")
    copy = add_task(rows, "alias", rows.known[held_out]["code"] + "# copy\n")
    relu = rows.task("relu", family="pointwise", split="train")
    kernels = [rows.kernel(relu, code_of("relu", name)) for name in "ab"]
    for kernel in kernels:
        rows.add_session(relu, kernel, 2.0)
    rows.add_attempt(kernels[0], copy)
    assert list_shown(rows_of(make_job(lake_of(rows), sft))) == {kernels[1]}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "change",
    [("N = 1024", "N = 2048"), ("return []", "return ['# a']"), ("cumsum(x)", "cumsum(input=x)")],
)
def test_another_constant_or_string_makes_another_task(change, rows: Rows, lake_of) -> None:
    held_out = rows.task("cumsum", family="scan", split="test")
    other = add_task(rows, "alias", rows.known[held_out]["code"].replace(*change))
    found = {row["task_id"] for row in lake_of(rows).sql("FROM test_tasks").rows()}
    assert found == {held_out}
    assert other != held_out
