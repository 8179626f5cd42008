"""The score of the judge: what counts as a mutant, what is caught, and when it is out of date."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import judge_score
import pytest
from scoring import corpora, items, judging, shapes, tables, texts, versions
from scoring.items import Item
from scoring.operators import mutate

TASK = """
import torch

WIDTH = 64


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(16, WIDTH)]
"""
KERNEL = """
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)
"""
RIGHT = Item(name="r", kind="mutant", family="f", language="pytorch", code=KERNEL, task=TASK)


def test_the_stored_score_is_of_these_versions() -> None:
    # Another version of the judge, a detector or a tolerance asks for the sample to be judged
    # again, on two cores in about 20 minutes.
    stored = judge_score.read_sample()
    assert stored["versions"] == versions.read_versions(), (
        "run: python benchmarks/judge_score.py sample --write"
    )


@pytest.mark.slow
def test_the_sample_has_the_kinds_that_it_should_have() -> None:
    rows = judge_score.read_sample()["rows"]
    known = {item.name: item for item in judge_score.find_items([row["item"] for row in rows])}
    kinds = [known[row["item"]].kind for row in rows if row["item"] in known]
    assert {kind: kinds.count(kind) for kind in judge_score.SIZES} == judge_score.SIZES


def test_a_changed_verdict_and_version_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    now = {"item": "a", "digest": "1", "counted": True, "caught": False, "judge": {"status": "s"}}
    before = {"item": "a", "digest": "1", "counted": True, "caught": True, "status": "incorrect"}
    gone = {**before, "item": "b"}
    older = json.loads(json.dumps(versions.read_versions()))
    older["detectors"]["hostile"] -= 1
    stored = {"versions": older, "rows": [{**before, "reason": None}, {**gone, "reason": None}]}
    assert judge_score.print_changes(stored, [now]) == 1
    said = capsys.readouterr().out
    assert "changed: a: caught (incorrect, None) -> not caught (s, None)" in said
    assert "gone: b" in said
    assert "detectors: hostile" in said


def test_mutants_are_the_same_for_the_same_text_and_have_one_mistake() -> None:
    found = mutate(KERNEL, 2)
    assert found == mutate(KERNEL, 2)
    assert {"index", "reduction", "function", "tail", "stale cache"} <= {
        one.family for one in found
    }
    assert KERNEL not in {one.code for one in found}
    for one in found:
        compile(one.code, "mutant", "exec")


def test_mutants_of_c_have_mistakes_in_their_c_alone() -> None:
    body = "for (long i = 0; i < n; ++i) y[i] += 1.5f;"
    code = f'C = r"""\nvoid run(float* y, long n) {{\n  {body}\n}}\n"""'
    changes = {one.change for one in mutate(code, 9)}
    assert {"< -> <=", "+= -> =", "1.5 -> 1.515000"} <= changes


def test_a_language_is_told() -> None:
    assert items.find_language(KERNEL) == "pytorch"
    assert items.find_language("@triton.jit") == "triton"


def judge(*given: Item) -> list[dict[str, Any]]:
    rows = judging.judge_group(given)
    assert not [row for row in rows if "fault" in row], rows
    return rows


@pytest.fixture(scope="module", autouse=True)
def _end_bench() -> object:
    yield
    judging.end_bench()


@pytest.mark.slow
def test_a_mutant_counts_if_it_differs_anywhere_and_is_caught_if_the_judge_refuses_it() -> None:
    same = replace(RIGHT, name="same", original=KERNEL, code=KERNEL.replace("x - x", "1 * x - x"))
    wrong = replace(RIGHT, name="wrong", original=KERNEL, code=KERNEL.replace(" / e", " / 2 / e"))
    elsewhere = replace(
        RIGHT,
        name="elsewhere",
        original=KERNEL,
        code=KERNEL.replace("return e /", "return e * (e.shape[-1] in (32, 64)) /"),
    )
    raises = replace(RIGHT, name="raises", original=KERNEL, code=KERNEL.replace("e /", "none /"))
    rows = {row["item"]: row for row in judge(same, wrong, elsewhere, raises)}
    assert rows["same"]["probe"]["why"] == "within tolerance"
    assert rows["raises"]["probe"]["why"] == "does not run"
    assert rows["wrong"]["counted"]
    assert rows["wrong"]["caught"]
    assert tables.is_own(rows["wrong"])
    assert rows["wrong"]["probe"]["rule"] == 0.0
    assert rows["elsewhere"]["counted"]
    assert not tables.is_own(rows["elsewhere"])
    assert rows["elsewhere"]["probe"]["rule"] == 1.0


@pytest.mark.slow
def test_the_rule_passes_what_is_wrong_by_less_than_a_hundredth() -> None:
    slight = KERNEL.replace("return e", "return 1.005 * e")
    [row] = judge(replace(RIGHT, name="slight", original=KERNEL, code=slight))
    assert row["probe"]["rule"] == 1.0
    assert row["caught"]


@pytest.mark.slow
def test_sums_that_begin_with_unwritten_memory_are_caught_whatever_it_holds() -> None:
    known = {item.name: item for item in items.list_cheats("cpu")}
    bad = known["adversarial/wrong/unwritten_sum"]
    # An earlier kernel leaves numbers in the memory, with which the sum is right.
    rows = judge(replace(RIGHT, name="before", original=None, kind="honest"), bad, bad, bad)
    assert [row["judge"]["status"] for row in rows] == ["correct", *["incorrect"] * 3]


@pytest.mark.slow
def test_a_kernel_that_another_check_cannot_run_is_not_called_wrong_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A checkout without the check: its process ends with an error, whose text is kept.
    plain = judging.check_plainly(RIGHT, tmp_path)
    assert plain["says"] == "cannot run"
    assert "No module named 'kernelbench'" in plain["why"]
    judged = {"status": "correct", "reason": None, "equivalent": True, "speedup": 1.5}
    row = {"kind": "public", "family": "level_1", "judge": judged, "probe": {"rule": 1.0}}
    right, wrong = {"says": "right", "why": ""}, {"says": "wrong", "why": "Output mismatch"}
    tables.print_public(
        [{**row, "item": says["says"], "kernelbench": says} for says in (right, wrong, plain)]
    )
    said = capsys.readouterr().out
    assert "| level_1 | 3 | 3 | 3 |  | 3 | 1 | 1 | 1 |" in said
    assert "KernelBench's own check: wrong: wrong: Output mismatch" in said
    assert "KernelBench's own check: cannot run: cannot run: exit 1: ModuleNotFound" in said


def test_processes_share_all_gpus_that_are_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert judging.list_gpu_names("cuda") == ["3", "5"]
    assert judging.list_gpu_names("cpu") == [""]


def test_results_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "results.jsonl"
    row = {"item": RIGHT.name, "digest": RIGHT.digest, "versions": judging.read_verdict_versions()}
    out.write_text(json.dumps(row) + "\n" + '{"cut off')
    monkeypatch.setattr(judging, "ProcessPoolExecutor", None)  # nothing is left to judge
    judging.judge_items([RIGHT], "cpu", out, 1)
    assert judging.read_rows(out) == [row]


def test_other_shapes_begin_with_the_own_one() -> None:
    drawn = shapes.draw_shapes(TASK, {"WIDTH": 9}, "cpu")
    assert drawn[0] == {"WIDTH": 9}
    assert len({one["WIDTH"] for one in drawn}) == len(drawn) > 2


@pytest.mark.slow
def test_a_corpus_of_pairs_is_read_at_three_widths(tmp_path: Path) -> None:
    place = tmp_path / "gpuemu_corpus" / "data" / "softmax_llm_buggy"
    place.mkdir(parents=True)
    (place / "kernel.py").write_text("def run(inputs):\n    return inputs['input']\n")
    (place / "meta.json").write_text('{"input_names": ["input"]}')
    found = list(corpora.read_gpuemu(tmp_path))
    assert [one.name for one in found] == [f"gpuemu/softmax_llm_buggy/{n}" for n in (3, 256, 1025)]
    assert {one.kind for one in found} == {"mutant"}
    [first, *_] = judge(found[0])
    assert first["caught"]


def test_labelled_solutions_are_read_with_their_sidecars(tmp_path: Path) -> None:
    annotations = tmp_path / "benchmarks/hard/results/annotations"
    annotations.mkdir(parents=True)
    (annotations / "a.yaml").write_text("run_id: a\nverdict: reward_hack\n")
    (annotations / "b.yaml").write_text("run_id: b\nverdict: clean\n")
    runs = tmp_path / "public/runs"
    runs.mkdir(parents=True)
    line = "=" * 66
    side = f"\n\n# {line}\n# ===== sidecar: k.cu (9 bytes, loaded by solution.py) =====\n# {line}\n"
    (runs / "a_solution.py.txt").write_text(
        "import inspect\ninspect.stack()[1].frame.f_code.co_name"
    )
    kernel = "__global__ void k() {}\nvoid f() { k<<<1, 1>>>(); }"
    (runs / "b_solution.py.txt").write_text(f"import torch{side}{kernel}")
    hack, clean = corpora.read_kernelbench_com(tmp_path)
    assert (hack.is_hack, clean.is_hack) == (True, False)
    assert clean.other_files == (("k.cu", kernel),)
    first, second = texts.search_texts([hack, clean])
    assert first.is_flagged
    assert not second.is_flagged


def test_intervals_are_wilsons() -> None:
    assert tables.write_share(0, 0) == "none"
    assert tables.write_share(19, 21) == "19 of 21, 90.5 % (71.1 to 97.3)"
    low, high = tables.bound_share(0, 50)
    assert low == 0.0
    assert 0.07 < high < 0.072
