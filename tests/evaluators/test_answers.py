"""Answers of a judge process are accepted for the case of the request, and for nothing else."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import store
from evaluators import judge
from evaluators.judging.case import Case
from evaluators.scheduling import answers
from evaluators.scheduling.judge_threads import JudgedCase
from evaluators.scheduling.judges.process import JudgeProcess
from evaluators.scheduling.run import append_results, record_evaluation
from store.errors import SandboxFailed
from store.ids import content_id, workload_id


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """What the evaluator below is asked for."""


CASE = Case(
    kernel_id="k" * 64,
    task_id="t" * 64,
    workload_id="w" * 64,
    other_files=(("other.cu", ""),),
)
SUBJECT = answers.Subject(CASE, "d" * 64, evaluator="judge", version=judge.VERSION)
EVALUATION = {
    **SUBJECT.about,
    "evaluation_id": "e",
    "evaluator": "judge",
    "evaluator_version": judge.VERSION,
    "status": "correct",
    "reason": None,
    "flags": ["near_roofline"],
    "seeds": [1, 2],
    "max_abs_error": 0.5,
    "created_at": "2999-01-01T00:00:00+00:00",
}
TIMING = {
    **SUBJECT.about,
    "timing_id": "x",
    "evaluation_id": "e",
    "session_id": "s",
    "arm": "kernel",
    "samples_ms": [1.0, 2.0],
    "blocks": [0, 1],
    "inner_loops": 1,
    "cache": "cold",
    "noisy": False,
    "created_at": "2000-01-01T00:00:00+00:00",
}
FINDING = {
    "finding_id": content_id("finding", CASE.kernel_id, "judge", "5", "lazy_output"),
    "kernel_id": CASE.kernel_id,
    "evaluation_id": "e",
    "detector": "judge",
    "detector_version": 5,
    "class": "lazy_output",
    "quote": "a text",
    "confidence": 1.0,
}
ANALYSIS = {
    "analysis_id": "a",
    "kernel_id": CASE.kernel_id,
    "evaluation_id": "e",
    "kind": "profiler",
    "author": "torch.profiler 2.13",
    "body": "a text",
    "bottleneck": "compute",
}
TABLES = {
    "evaluations": [EVALUATION],
    "timings": [TIMING, TIMING | {"arm": "eager", "timing_id": "y"}],
    "findings": [FINDING],
    "analyses": [ANALYSIS],
}


def test_an_honest_answer_is_taken_whole_under_new_identities() -> None:
    found = answers.accept_judgment(TABLES, SUBJECT)
    assert {name: len(rows) for name, rows in found.items()} == {
        "evaluations": 1,
        "timings": 2,
        "findings": 1,
        "analyses": 1,
    }
    [evaluation] = found["evaluations"]
    new = evaluation["evaluation_id"]
    assert new != "e"
    rows = [*found["timings"], *found["findings"], *found["analyses"]]
    assert {row["evaluation_id"] for row in rows} == {new}
    assert len({row["session_id"] for row in found["timings"]} - {"s"}) == 1
    assert len({row["timing_id"] for row in found["timings"]} - {"x", "y"}) == 2
    assert found["findings"][0]["finding_id"] == FINDING["finding_id"]
    assert {row["created_at"][:2] for rows in found.values() for row in rows} == {"20"}
    assert evaluation["created_at"] < "2999"
    unchanged = {k: v for k, v in EVALUATION.items() if k not in ("evaluation_id", "created_at")}
    assert unchanged.items() <= evaluation.items()
    # A second answer shares nothing with the first.
    assert answers.accept_judgment(TABLES, SUBJECT)["evaluations"][0]["evaluation_id"] != new


@pytest.mark.parametrize(
    "tables",
    [
        None,
        [],
        "text",
        {},
        {"evaluations": []},
        {"evaluations": [EVALUATION, EVALUATION]},
        {"evaluations": EVALUATION},
        {"evaluations": ["text"]},
        *(
            {"evaluations": [EVALUATION | {name: "z" * 64}]}
            for name in ("kernel_id", "task_id", "workload_id", "device_id", "evaluator")
        ),
        {"evaluations": [EVALUATION | {"evaluator_version": judge.VERSION + 1}]},
        {"evaluations": [EVALUATION | {"evaluator_version": True}]},
        {"evaluations": [EVALUATION | {"run_id": "another run"}]},
        {"evaluations": [EVALUATION | {"source": "importer"}]},
        {"evaluations": [EVALUATION | {"unknown": 1}]},
        {"evaluations": [EVALUATION | {"status": 3}]},
        {"evaluations": [EVALUATION | {"seeds": [1 << 70]}]},
        {"evaluations": [EVALUATION | {"seeds": "12"}]},
        {"evaluations": [EVALUATION | {"log": "x" * (1 << 21)}]},
        {"evaluations": [EVALUATION | {"flags": [["deep"]]}]},
        {"evaluations": [EVALUATION | {"log": "\udc80"}]},
        TABLES | {"timings": [TIMING] * 1000},
        TABLES | {"timings": {}},
        TABLES | {"timings": [TIMING | {"session_id": None}]},
    ],
)  # fmt: skip
def test_what_is_no_judgement_of_the_case_is_refused(tables: Any) -> None:
    with pytest.raises(answers.RefusedAnswer):
        answers.accept_judgment(tables, SUBJECT)


@pytest.mark.parametrize(
    ("name", "row"),
    [
        *(("timings", TIMING | {key: "z" * 64}) for key in ("kernel_id", "task_id", "device_id")),
        ("timings", TIMING | {"evaluation_id": "another"}),
        ("timings", TIMING | {"samples_ms": ["fast"]}),
        ("timings", TIMING | {"samples_ms": [1.0] * 200_000}),
        ("timings", TIMING | {"invented": 1}),
        ("timings", 7),
        ("findings", FINDING | {"kernel_id": "z" * 64}),
        ("findings", FINDING | {"detector": "person"}),
        ("findings", FINDING | {"detector": None}),
        ("findings", FINDING | {"prompt_id": "p"}),
        ("findings", FINDING | {"run_id": "r"}),
        ("analyses", ANALYSIS | {"kernel_id": "z" * 64}),
        ("analyses", ANALYSIS | {"evaluation_id": "of another case"}),
        ("analyses", ANALYSIS | {"fastest_kernel_id": "z" * 64}),
        ("analyses", ANALYSIS | {"generation_id": "g"}),
        ("standings", {"standing_id": "s", "finding_id": "f", "decision": "dismissed"}),
        ("policies", {"policy_id": "p", "name": "p"}),
        ("tags", {"name": "t"}),
    ],
)
def test_a_row_of_something_else_is_left_out_alone(name: str, row: Any) -> None:
    found = answers.accept_judgment({**TABLES, name: [*TABLES.get(name, []), row]}, SUBJECT)
    assert {name: len(rows) for name, rows in found.items()} == {
        name: len(rows) for name, rows in TABLES.items()
    }


def test_a_finding_takes_no_identity_of_another() -> None:
    honest = [
        FINDING | {"detector": "hostile", "line": 3, "finding_id": content_id(*parts)}
        for parts in (
            ("finding", CASE.kernel_id, "hostile", "5", "lazy_output", "3"),
            ("finding", CASE.kernel_id, "hostile", "5", "lazy_output", "3", "other.cu"),
        )
    ]
    forged = FINDING | {"finding_id": content_id("finding", "z" * 64, "judge", "5", "lazy_output")}
    found = answers.accept_judgment(TABLES | {"findings": [*honest, forged]}, SUBJECT)["findings"]
    assert [row["finding_id"] for row in found[:2]] == [row["finding_id"] for row in honest]
    assert found[2]["finding_id"] != forged["finding_id"]


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
columns = st.sampled_from(sorted({*EVALUATION, *TIMING, *FINDING, *ANALYSIS}))


@settings(suppress_health_check=[HealthCheck.too_slow])  # on a busy host
@given(
    tables=plain
    | st.dictionaries(
        st.sampled_from([*TABLES, "standings"]),
        plain | st.lists(plain | st.dictionaries(columns, plain), max_size=3),
    ),
    changes=st.dictionaries(columns, plain, max_size=3),
)
def test_no_answer_makes_anything_but_an_answer(tables: Any, changes: dict[str, Any]) -> None:
    for one in (tables, {**TABLES, "evaluations": [EVALUATION | changes]}):
        try:
            found = answers.accept_judgment(one, SUBJECT)
        except answers.RefusedAnswer:
            continue
        assert SUBJECT.about.items() <= found["evaluations"][0].items()
    for one in (tables, changes):
        with contextlib.suppress(answers.RefusedAnswer):
            answers.accept_remarks(one, SUBJECT)
        with contextlib.suppress(answers.RefusedAnswer):
            answers.accept_audit(one, {"task_id": "t"})


def test_a_second_session_is_of_the_same_case() -> None:
    ending = {"status": "crash", "reason": "signal", "message": "m", "log": "d"}
    rows = [TIMING, TIMING | {"kernel_id": "z" * 64}]
    tables = answers.accept_judgment(
        {"evaluations": [EVALUATION | ending], "timings": rows}, SUBJECT
    )
    assert ending.items() <= tables["evaluations"][0].items()
    assert len(tables["timings"]) == 1
    for wrong in ({"message": ["m"]}, {"task_id": "z" * 64}, {"device_id": "z" * 64}):
        with pytest.raises(answers.RefusedAnswer):
            answers.accept_judgment({"evaluations": [EVALUATION | wrong]}, SUBJECT)


def test_an_audit_is_of_the_task_that_was_asked_about() -> None:
    about = {"task_id": "t", "workload_id": "w", "device_id": "d", "auditor_version": 1}
    row = about | {"passes": ["zeros"], "weak": True, "repeatable": True}
    assert row.items() <= answers.accept_audit(row, about).items()
    for change in ({"task_id": "u"}, {"auditor_version": 2}, {"passes": 3}, {"lake_id": "l"}):
        with pytest.raises(answers.RefusedAnswer):
            answers.accept_audit(row | change, about)


FORGER = '''
"""An evaluator that answers what it likes."""
from dataclasses import dataclass

VERSION = 3


@dataclass(frozen=True, kw_only=True)
class Config:
    """Its options."""


def judge(case, bench, config):
    ids = {"kernel_id": case.kernel_id, "task_id": case.task_id, "workload_id": case.workload_id}
    row = {**ids, "device_id": bench.row["device_id"], "evaluation_id": "e", "status": "correct",
           "evaluator": "forger", "evaluator_version": VERSION}
    how = case.code.strip().lstrip("# ")
    if how == "another kernel":
        row["kernel_id"] = "f" * 64
    if how == "no tables":
        return 3
    if how == "exits":
        raise SystemExit(1)
    tables = {"evaluations": [row], "timings": []}
    if how == "more tables":
        tables["standings"] = [{"standing_id": "s", "finding_id": "f", "decision": "dismissed"}]
        tables["policies"] = [{"policy_id": "p", "name": "p", "kind": "person"}]
    return tables
'''


@pytest.fixture
def forger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an evaluator of the user's own into the working directory."""
    folder = tmp_path / "flywheel" / "evaluators"
    folder.mkdir(parents=True)
    (folder / "forger.py").write_text(FORGER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path / "cache"))


def make_case(how: str) -> Case:
    """Return a case that the forger answers in some way."""
    ids = dict.fromkeys(("kernel_id", "task_id", "workload_id"), "a" * 64)
    return Case(**ids, code=f"# {how}")


@pytest.mark.slow
def test_an_evaluator_of_ones_own_that_exits_is_started_again(forger: None) -> None:
    with JudgeProcess("forger", "cpu", NoOptions()) as host:
        with pytest.raises(SandboxFailed):
            host.judge(make_case("exits"))
        host.restart()
        assert host.judge(make_case("honest"))["evaluations"][0]["status"] == "correct"


@pytest.mark.slow
def test_an_evaluator_of_ones_own_answers_for_its_case_alone(forger: None) -> None:
    with JudgeProcess("forger", "cpu", NoOptions()) as host:
        kinds = ("honest", "another kernel", "no tables", "more tables")
        told = {how: host.judge(make_case(how)) for how in kinds}
        assert {how: tables["evaluations"][0]["status"] for how, tables in told.items()} == {
            "honest": "correct",
            "another kernel": "evaluator_error",
            "no tables": "evaluator_error",
            "more tables": "correct",
        }
        for tables in told.values():
            [row] = tables["evaluations"]
            assert row["kernel_id"] == "a" * 64
            assert set(tables) <= set(TABLES)


@pytest.fixture
def store_tables(
    empty_lake: Path, tmp_path: Path
) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Return a function that stores the rows of one or more cases, and gives the lake's rows."""
    url = str(tmp_path / "lake")
    shutil.copytree(empty_lake, url)
    code = store.ids.normalize("a task")
    task_id = store.ids.task_id(code)
    kernel_id = store.ids.kernel_id({"kernel.py": "code"}, "kernel.py")
    case = {
        "kernel_id": kernel_id,
        "task_id": task_id,
        "workload_id": store.ids.workload_id(task_id),
    }
    device = {
        "device_id": "d" * 64,
        "kind": "cpu",
        "model": "m",
        "name": "a processor",
        "host": "h",
    }
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [{"task_id": task_id, "code": code, "source": "tests"}],
                "workloads": [
                    {
                        "workload_id": case["workload_id"],
                        "task_id": task_id,
                        "name": "default",
                        "axes": "{}",
                        "generator": "get_inputs",
                    }
                ],
                "kernels": [
                    {
                        "kernel_id": kernel_id,
                        "code": "code",
                        "path": "kernel.py",
                        "entry_point": "ModelNew",
                        "source": "tests",
                    }
                ],
            },
            "a case",
        )

    earlier = itertools.count()

    def make_result(tables: dict[str, list[dict[str, Any]]]) -> JudgedCase:
        ids = {**case, "device_id": device["device_id"]}
        tables = {
            name: [
                {**row, **{key: value for key, value in ids.items() if key in row}} for row in rows
            ]
            for name, rows in tables.items()
        }
        return JudgedCase(Case(**case, path="k", earlier=next(earlier)), device, tables)

    def store_all(*given: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
        results = [make_result(tables) for tables in given]
        member = SimpleNamespace(__name__="evaluators.judge", VERSION=judge.VERSION)
        with (
            store.writer(url, author="tests") as writer,
            record_evaluation(writer, member, [device], {}, ("lake", 1)) as run,  # type: ignore[arg-type]
        ):
            append_results(writer, member, run.run_id, results)  # type: ignore[arg-type]
        with store.open(url) as lake:
            return {name: lake.run(f"SELECT * FROM {name}").rows() for name in TABLES}

    return store_all


@pytest.mark.slow
def test_rows_that_break_a_rule_cost_nobody_elses(store_tables: Callable[..., Any]) -> None:
    tables = {name: TABLES[name] for name in ("evaluations", "timings")}
    found = store_tables(tables)
    assert (len(found["evaluations"]), len(found["timings"])) == (1, 2)
    # Samples without blocks: the timings go, the verdict stays.
    bad = {"timings": [TIMING | {"blocks": [0], "timing_id": "p", "evaluation_id": "f"}]}
    found = store_tables(tables | {"evaluations": [EVALUATION | {"evaluation_id": "f"}]} | bad)
    assert (len(found["evaluations"]), len(found["timings"])) == (2, 2)


@pytest.mark.slow
def test_cases_that_are_stored_together_lose_only_their_own_bad_rows(
    store_tables: Callable[..., Any],
) -> None:
    def make_tables(name: str, **changes: Any) -> dict[str, list[dict[str, Any]]]:
        timing = TIMING | {"timing_id": name, "evaluation_id": name, "session_id": name}
        return {
            "evaluations": [EVALUATION | {"evaluation_id": name}],
            "timings": [timing | changes],
        }

    bad_verdict = make_tables("c")
    bad_verdict["evaluations"][0]["status"] = "splendid"
    tables = [make_tables("a"), make_tables("b", blocks=[0]), bad_verdict, make_tables("d")]
    found = store_tables(*tables)
    statuses = sorted(row["status"] for row in found["evaluations"])
    assert statuses == ["correct", "correct", "correct", "evaluator_error"]
    assert sorted(row["timing_id"] for row in found["timings"]) == ["a", "d"]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "change", [{"reason": "nan"}, {"status": "splendid"}, {"max_abs_error": float("inf")}]
)
def test_a_verdict_that_breaks_a_rule_is_a_fault_of_ours(
    store_tables: Callable[..., Any], change: dict[str, Any]
) -> None:
    found = store_tables({"evaluations": [EVALUATION | change], "timings": [TIMING]})
    [row] = found["evaluations"]
    assert (row["status"], row["reason"]) == ("evaluator_error", "internal")
    assert "breaks a rule" in row["message"]
    assert found["timings"] == []
    assert json.dumps(row, default=str)


AXES = '{"ROWS": 1}'
ELSEWHERE = {"workload_id": workload_id(CASE.task_id, AXES)}
WORKLOAD = ELSEWHERE | {"task_id": CASE.task_id, "name": "ROWS=1", "axes": AXES}
AT_SHAPE = EVALUATION | ELSEWHERE | {"evaluation_id": "f", "protocol": "full"}
WITH_SHAPE = TABLES | {
    "evaluations": [EVALUATION, AT_SHAPE],
    "workloads": [WORKLOAD],
    "timings": [*TABLES["timings"], TIMING | ELSEWHERE | {"evaluation_id": "f"}],
}


def test_rows_of_other_shapes_follow_those_of_the_case_and_never_rank() -> None:
    found = answers.accept_judgment(WITH_SHAPE, SUBJECT)
    own, at_shape = found["evaluations"]
    assert (own["workload_id"], own.get("protocol")) == (CASE.workload_id, None)
    assert at_shape["workload_id"] == ELSEWHERE["workload_id"]
    assert at_shape["protocol"] == "shape"
    assert [row["evaluation_id"] for row in found["timings"]] == [
        own["evaluation_id"], own["evaluation_id"], at_shape["evaluation_id"]
    ]  # fmt: skip
    [workload] = found["workloads"]
    assert WORKLOAD.items() <= workload.items()
    assert workload["generator"] == "get_inputs"


@pytest.mark.parametrize(
    "tables",
    [
        {"workloads": []},
        {"workloads": [WORKLOAD | {"axes": '{"ROWS": 2}'}]},
        {"workloads": [WORKLOAD | {"axes": "[1]"}]},
        {"workloads": [WORKLOAD | {"name": None}]},
        {"workloads": ["text", {}]},
        {"evaluations": [EVALUATION, AT_SHAPE | {"kernel_id": "z" * 64}]},
        {"evaluations": [EVALUATION, AT_SHAPE | {"evaluator_version": 1}]},
    ],
)
def test_forged_rows_of_other_shapes_are_left_out(tables: Any) -> None:
    found = answers.accept_judgment(WITH_SHAPE | tables, SUBJECT)
    assert len(found["evaluations"]) == 1
    assert len(found["timings"]) == 2
    assert not found.get("workloads")


def test_a_row_may_have_the_former_name_of_a_column() -> None:
    row = EVALUATION | {"policy": "fp32_strict"}
    found = answers.accept_judgment({"evaluations": [row]}, SUBJECT)
    assert found["evaluations"][0]["policy"] == "fp32_strict"


def test_a_case_is_read_as_it_was_written() -> None:
    whole = replace(
        CASE,
        build={"seconds": 1.0, "hit": False, "failure": None},
        spreads={"gpu": 0.02},
        earlier=2,
        precision="fp32_strict",
    )
    assert Case.read(json.loads(json.dumps(whole.write()))) == whole
    former = {
        ("policy" if name == "precision" else name): one for name, one in whole.write().items()
    }
    assert Case.read(former) == whole  # in a queue of a version before 0.6.0
    # A queue of an earlier version has rows of cases.sql with the spreads of sessions.
    earlier = {
        **dict.fromkeys(("kernel_id", "task_id", "workload_id"), "k"),
        **{"code": "c", "path": "a.py", "entry_point": "ModelNew", "task_code": "t"},
        **{"axes": "{}", "compiles": True, "precision": None, "protocol": "training", "earlier": 1},
        **{"other_files": [["b.cu", "d"]], "best_speedup": 1.5, "weak": False, "trusted": True},
        **{"spreads": {"gpu": 0.02}, "column_of_another_version": 3},
    }
    case = Case.read(earlier)
    assert case.files == {"a.py": "c", "b.cu": "d"}
    assert earlier.items() >= {k: v for k, v in case.write().items() if k in earlier}.items()
