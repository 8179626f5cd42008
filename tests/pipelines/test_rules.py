"""Rules that no pipeline may break, whatever its SQL picks: leakage, quarantine, contamination."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import builders
import pytest
from pipeline_lakes import Known, Rows, code_of

import store
from pipelines import contrastive_batch, improvement_pairs, preference_pairs, repair_pairs, sft
from pipelines.contract import Request
from pipelines.datasets import materialize
from store.commandline import members
from store.errors import EmptyDataset, LeakageFound

CARELESS = '''"""Every kernel of every task, whatever it is."""

from dataclasses import dataclass

import pipelines

DATASET_TYPE = "prompt-completion"
TEMPLATE = "one_shot.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of careless."""

    task: str | None = None
    """Only this task."""


def select(lake, config, request):
    rows = lake.run(
        "SELECT task_id, [kernel_id] AS kernel_ids, kernel_id FROM generations "
        "WHERE $1 IS NULL OR task_id = $1 ORDER BY ALL",
        [config.task],
    )
    return pipelines.Selection(rows=rows.arrow())


def render(row):
    text = pipelines.render(
        TEMPLATE, task_block=pipelines.render_task(row.task), device_kind="cuda"
    )
    return {
        "prompt": [{"role": "user", "content": text}],
        "completion": [{"role": "assistant", "content": pipelines.render_files(row.kernels[0])}],
    }
'''


@pytest.fixture
def careless_pipeline(tmp_path: Path, monkeypatch) -> ModuleType:
    """Return a user's own pipeline that looks at nothing."""
    folder = tmp_path / "flywheel" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "careless.py").write_text(CARELESS)
    monkeypatch.chdir(tmp_path)
    return members.find_member("pipelines", "careless").load()


def test_a_task_of_the_test_split_in_training_rows_is_an_error(
    lake, make_job, careless_pipeline, known_ids: Known
) -> None:
    with pytest.raises(LeakageFound, match=f"cumsum \\({known_ids.held_out[:12]}\\)"):
        materialize.preview_dataset(make_job(lake, careless_pipeline))


def test_the_leakage_check_lets_other_tasks_and_evaluation_pass(
    lake, make_job, careless_pipeline, known_ids: Known
) -> None:
    assert (
        materialize.preview_dataset(make_job(lake, careless_pipeline, task=known_ids.sigmoid)).rows
        == 3
    )
    request = Request(purpose="eval")
    job = make_job(lake, careless_pipeline, task=known_ids.held_out, request=request)
    assert materialize.preview_dataset(job).rows == 3


@pytest.mark.slow
def test_any_label_of_the_test_split_keeps_a_task_out(
    rows_and_ids, lake_of, make_job, careless_pipeline, rows_of
) -> None:
    made, known = rows_and_ids
    made.tables["task_labels"].append(
        made.tables["task_labels"][0]
        | {"suite": "another", "name": "another name", "family": "held"}
    )
    made.tables["splits"].append(
        made.tables["splits"][0] | {"suite": "another", "family": "held", "split": "test"}
    )
    lake = lake_of(made)
    with pytest.raises(LeakageFound):
        materialize.preview_dataset(make_job(lake, careless_pipeline, task=known.relu))
    assert "relu" not in {row["task"] for row in rows_of(make_job(lake))}


def test_quarantined_kernels_never_reach_a_dataset(
    lake, make_job, careless_pipeline, known_ids: Known, rows_of
) -> None:
    job = make_job(lake, careless_pipeline, task=known_ids.relu)
    assert known_ids.kernels["cheat"] not in {row["kernel_id"] for row in rows_of(job)}
    assert materialize.preview_dataset(job).dropped == {"row: quarantined": 1}


@pytest.mark.slow
def test_a_dismissed_finding_lets_the_kernel_back(
    rows_and_ids, lake_of, make_job, careless_pipeline
) -> None:
    made, known = rows_and_ids
    [finding], [standing] = made.tables["findings"], made.tables["standings"]
    later = made.tables["evaluations"][-1]["created_at"]
    made.tables["standings"].append(
        standing | {"standing_id": "later", "decision": "dismissed", "created_at": later}
    )
    assert finding["kernel_id"] == known.kernels["cheat"]
    dropped = materialize.preview_dataset(
        make_job(lake_of(made), careless_pipeline, task=known.relu)
    ).dropped
    assert dropped == {}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("shared", "contaminated"), [(16, True), (8, True), (7, False)])
def test_near_copies_of_answers_to_test_tasks_are_left_out(
    rows: Rows, lake_of, make_job, careless_pipeline, shared, contaminated
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    scan = rows.task("cumsum", family="scan", split="test")
    rows.kernel(scan, code_of("cumsum", "answer"), bands=range(16))
    rows.kernel(relu, code_of("relu", "copy"), bands=[*range(shared), *range(100, 116 - shared)])
    rows.kernel(relu, code_of("relu", "own"), bands=range(200, 216))
    dataset = materialize.preview_dataset(make_job(lake_of(rows), careless_pipeline, task=relu))
    assert dataset.rows == (1 if contaminated else 2)
    assert dataset.dropped == ({"row: contaminated": 1} if contaminated else {})


@pytest.mark.slow
def test_repeated_rows_are_left_out_and_counted(
    rows_and_ids, lake_of, make_job, careless_pipeline
) -> None:
    made, known = rows_and_ids
    made.add_attempt(known.kernels["sigmoid.a"], known.sigmoid, "student")
    dataset = materialize.preview_dataset(
        make_job(lake_of(made), careless_pipeline, task=known.sigmoid)
    )
    assert dataset.rows == 3
    assert dataset.dropped == {"row: duplicate": 1}


SIGNS = ["a sure finding", "a finding without a confidence", "a rejection elsewhere"]
PIPELINES = [
    (contrastive_batch, {}),
    (contrastive_batch, {"strategy": "top"}),
    (sft, {}),
    (preference_pairs, {}),
]


def accuse(rows: Rows, task: str, kernel_id: str, sign: str) -> builders.Row | None:
    """Make a kernel a known cheat that nobody has decided on; return the finding if any."""
    if sign == "a rejection elsewhere":
        rows.device("another")
        rows.add_verdict(task, kernel_id, "rejected", device="another", reason="lazy_output")
        return None
    confidence = 0.9 if sign == "a sure finding" else None
    found = builders.finding(rows.known[kernel_id], "lazy_output", confidence=confidence)
    return rows.add("findings", found)


def list_shown(rows: list[builders.Row]) -> set[str]:
    """Return every kernel in rows of a dataset."""
    found: set[str | None] = set()
    for row in rows:
        found |= set(row.get("exemplar_kernel_ids") or ())
        found |= {row.get(f"{name}kernel_id") for name in ("", "chosen_", "rejected_")}
    return {one for one in found if one is not None}


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("evidence", ["measured", "claimed"])
@pytest.mark.parametrize("sign", SIGNS)
def test_a_known_cheat_reaches_no_dataset_until_a_person_says_so(
    sign, evidence, rows_and_ids, lake_of, make_job, careless_pipeline, rows_of
) -> None:
    made, known = rows_and_ids
    cheat = known.kernels["relu.d"]
    for name, speedup in (("relu.d", 120.0), ("relu.a", 1.4), ("relu.c", 2.8)):
        made.claim(known.relu, known.kernels[name], speedup)
    finding = accuse(made, known.relu, cheat, sign)
    lake = lake_of(made)
    dropped = materialize.preview_dataset(
        make_job(lake, careless_pipeline, task=known.relu)
    ).dropped
    reason = "rejected" if finding is None else "suspected"
    assert dropped == {"row: quarantined": 1, f"row: {reason}": 1}
    for pipeline, options in PIPELINES:
        found = list_shown(rows_of(make_job(lake, pipeline, evidence=evidence, **options)))
        assert found, pipeline
        assert cheat not in found, pipeline
    # A dismissal that was pulled from another lake lifts nothing, and a person's own does.
    with store.writer(lake.url, author="tests") as writer:
        if finding is None:
            finding = builders.finding(made.known[cheat], "reported", confidence=1.0)
            writer.append({"findings": [finding]}, "a finding that a person files")
        pulled = builders.standing(finding, "dismissed", 1, origin="someone/lake")
        writer.append({"standings": [pulled]}, "a decision of another lake")
        with store.open(lake.url) as later:
            assert cheat not in list_shown(rows_of(make_job(later, sft, evidence=evidence)))
        writer.append({"standings": [builders.standing(finding, "dismissed", 2)]}, "our own")
        with store.open(lake.url) as later:
            assert later.sql(f"FROM withheld WHERE kernel_id = '{cheat}'").rows() == []
            found = list_shown(rows_of(make_job(later, sft, evidence=evidence)))
    # What was rejected is still wrong elsewhere.
    assert (cheat in found) == (reason == "suspected")


@pytest.mark.slow
def test_a_finding_of_little_confidence_keeps_nothing_out(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    kernel = known.kernels["relu.d"]
    found = builders.finding(made.known[kernel], "global_flags", confidence=0.7)
    made.add("findings", found)
    assert kernel in list_shown(rows_of(make_job(lake_of(made), sft)))


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("evidence", ["measured", "claimed"])
def test_another_function_is_shown_on_request_alone(
    evidence, rows_and_ids, lake_of, make_job, careless_pipeline, rows_of
) -> None:
    made, known = rows_and_ids
    kernel = known.kernels["relu.d"]
    for name in ("relu.d", "relu.a", "relu.c"):
        made.claim(known.relu, known.kernels[name], 2.0)
    made.add_verdict(known.relu, kernel, equivalent=False, flags=["another_function"])
    lake = lake_of(made)
    dropped = materialize.preview_dataset(
        make_job(lake, careless_pipeline, task=known.relu)
    ).dropped
    assert dropped == {"row: quarantined": 1, "row: another function": 1}
    asked = Request(include_nonequivalent=True)
    for pipeline, options in PIPELINES:
        options = options | {"evidence": evidence}
        assert kernel not in list_shown(rows_of(make_job(lake, pipeline, **options))), pipeline
    assert kernel in list_shown(rows_of(make_job(lake, sft, request=asked, evidence=evidence)))
    # The rule is asked for anew where the request is another one.
    assert kernel not in list_shown(rows_of(make_job(lake, sft, evidence=evidence)))


@pytest.mark.slow
def test_kernels_that_are_wrong_at_another_shape_are_not_shown_by_default(
    rows_and_ids, lake_of, make_job, careless_pipeline, rows_of
) -> None:
    made, known = rows_and_ids
    other = made.workload(known.relu, "ROWS=1", '{"ROWS": 1}')
    wrong, raises, holds = (known.kernels[f"relu.{name}"] for name in "acd")
    failed = {"status": "incorrect", "reason": "incorrect_numerical"}
    raised = {"status": "crash", "reason": "exception", "message": "AssertionError"}
    for kernel, outcome in ((wrong, failed), (raises, raised), (holds, {})):
        made.add_verdict(known.relu, kernel, workload_id=other, protocol="shape", **outcome)
    lake = lake_of(made)

    def shown(pipeline, shapes):
        request = Request(shapes=shapes)
        rows = rows_of(make_job(lake, pipeline, request=request, per_policy=9))
        return {*list_shown(rows)} & {wrong, raises, holds}

    assert shown(sft, "honest") == {raises, holds}
    assert shown(sft, "held") == {holds}
    assert shown(sft, "any") >= {raises, holds}
    assert wrong not in list_shown(rows_of(make_job(lake, contrastive_batch)))
    dropped = materialize.preview_dataset(
        make_job(lake, careless_pipeline, task=known.relu)
    ).dropped
    assert dropped["row: wrong at another shape"] == 1
    prompts = " ".join(
        message["content"]
        for row in rows_of(make_job(lake, contrastive_batch, exemplars=2))
        for message in row["prompt"]
    )
    assert "x (1 of 1)\n" in prompts or "x (0 of 1, 1 raising)\n" in prompts
    assert "In parentheses: at how many other input shapes" in prompts


@pytest.mark.slow
def test_a_dataset_says_which_tasks_nobody_audited(
    rows: Rows, lake_of, lake_url: str, make_job
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for name, speedup in (("a", 2.0), ("b", 4.0)):
        rows.add_session(relu, rows.kernel(relu, code_of("relu", name)), speedup)
    job = make_job(lake_of(rows))
    assert materialize.preview_dataset(job).notes["unaudited"] == "1 tasks (`evaluators tasks`)"
    [sizes] = rows.tables["workloads"]
    with store.writer(lake_url, author="tests") as writer:
        audit = builders.task_audit(sizes, rows.tables["devices"][0], [])
        writer.append({"task_audits": [audit]}, "audits")
    with store.open(lake_url) as lake:
        assert "unaudited" not in materialize.preview_dataset(make_job(lake)).notes


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("evidence", ["measured", "claimed"])
def test_a_kernel_that_the_newest_audit_has_not_read_reaches_no_dataset(
    rows_and_ids, lake_of, make_job, rows_of, careless_pipeline, evidence
) -> None:
    made, known = rows_and_ids
    unread = known.kernels["relu.d"]
    for name, speedup in (("relu.d", 9.0), ("relu.a", 1.4), ("relu.c", 2.8)):
        made.claim(known.relu, known.kernels[name], speedup)
    made.tables["scans"] = [row for row in made.tables["scans"] if row["kernel_id"] != unread]
    lake = lake_of(made)
    for pipeline, options in PIPELINES:
        job = make_job(lake, pipeline, evidence=evidence, **options)
        shown = list_shown(rows_of(job))
        assert shown, pipeline
        assert unread not in shown, pipeline
    dropped = materialize.preview_dataset(make_job(lake, evidence=evidence)).dropped
    assert dropped["kernel: not audited"] == 1
    careless = make_job(lake, careless_pipeline, task=known.relu)
    assert materialize.preview_dataset(careless).dropped["row: not audited"] == 1
    # An audit with newer detectors reads one kernel, and those of older ones no longer count.
    config = json.dumps({"detectors": ["one@2"], "every_detector": True})
    run = builders.run("newer", "audit", config=config, started_at=builders.at(1))
    scan = {"kernel_id": known.kernels["sigmoid.a"], "run_id": run["run_id"]}
    for origin, shows in (("lab/x", True), (None, False)):
        with store.writer(lake.url, author="tests") as writer:
            newer = run | {"run_id": store.ids.content_id("run", str(origin)), "origin": origin}
            writer.append({"runs": [newer], "scans": [scan | {"run_id": newer["run_id"]}]}, "audit")
        with store.open(lake.url) as later:
            job = make_job(later, evidence=evidence)
            if shows:
                assert rows_of(job)
            elif evidence == "claimed":
                with pytest.raises(EmptyDataset, match="not audited") as caught:
                    rows_of(job)
                assert "`evaluators audit`" in str(caught.value.hint)
            else:
                assert list_shown(rows_of(job)) == {known.kernels["sigmoid.a"]}


@pytest.mark.slow
def test_an_open_finding_of_half_keeps_a_published_kernel_out(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    doubted = known.kernels["relu.d"]
    for name, speedup in (("relu.d", 9.0), ("relu.a", 1.4), ("relu.c", 2.8)):
        made.claim(known.relu, known.kernels[name], speedup)
    finding = made.add("findings", builders.finding(made.known[doubted], confidence=0.5))
    lake = lake_of(made)

    def list_claimed(lake: store.Lake, request: Request | None = None) -> set[str]:
        job = make_job(lake, evidence="claimed", per_task=30, request=request)
        return {*list_shown(rows_of(job))}

    assert doubted in list_shown(rows_of(make_job(lake, per_task=30)))
    assert doubted not in list_claimed(lake)
    assert doubted in list_claimed(lake, Request(include_doubted=True))
    dropped = materialize.preview_dataset(make_job(lake, evidence="claimed")).dropped
    assert dropped["kernel: open finding of 0.5 or more"] == 1
    with store.writer(lake.url, author="tests") as writer:
        writer.append({"standings": [builders.standing(finding, "dismissed")]}, "a decision")
    with store.open(lake.url) as later:
        assert doubted in list_claimed(later)


def test_a_dataset_of_kernels_that_no_audit_has_read_asks_for_one(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, _ = rows_and_ids
    made.tables["scans"] = []
    lake = lake_of(made)
    pairs = (improvement_pairs, preference_pairs, repair_pairs)
    for pipeline in (contrastive_batch, sft, *pairs):
        options = {"rejected": "slower"} if pipeline is preference_pairs else {}
        with pytest.raises(EmptyDataset, match=r"left out: \d+ not audited") as caught:
            rows_of(make_job(lake, pipeline, **options))
        assert "`evaluators audit`" in str(caught.value.hint)
