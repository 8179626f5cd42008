"""The CUDA-L1 release becomes tasks, kernels and claims; the audit's numbers come out of SQL."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import store
from store import ids
from store.errors import ImportFailed
from store.importers import cuda_l1, published
from store.importers.reading.pieces import ImportSummary, run_import

ROOT = Path(__file__).parents[2]
AUDIT = ROOT / "docs" / "audit"
TASK = '''import torch

class Model(torch.nn.Module):
    """{title}."""
    def forward(self, x):
        return torch.{name}(x)

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
'''
KERNEL = """class ModelNew:
    def forward(self, x):
        return {body}
"""
BASELINE = "class Model:\n    graph = {name!r}\n"


def row(problem: int, **changes: Any) -> dict[str, Any]:
    full: dict[str, Any] = {
        "level_id": 1,
        "task_id": problem,
        "ref_code": TASK.format(title=f"Task {problem}", name=["relu", "sum", "tanh"][problem]),
        "custom_code": KERNEL.format(body=f"x + {problem}"),
        "cuda_graph_code": BASELINE.format(name=f"graph {problem}"),
        "cudnn_code": BASELINE.format(name=f"cudnn {problem}"),
        "score_default": 2.0,
        "score_torch_compile_default": 1.5,
        "score_torch_compile_reduce_overhead": 1.25,
        "score_cuda_graph": 1.125,
        "score_cudnn": 4.0,
    }
    return full | changes


def write(folder: Path, gpu: str, rows: list[dict[str, Any]]) -> Path:
    file = folder / f"{gpu}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return file


def load(writer: store.Writer, path: Path, **options: Any) -> ImportSummary:
    return run_import(writer, cuda_l1, path, cuda_l1.Config(**options))


@pytest.fixture(scope="module")
def bare_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return an empty lake, for what fails before anything is stored."""
    with (
        store.writer(str(tmp_path_factory.mktemp("empty") / "lake"), author="tests") as writer,
        writer.reader() as lake,
    ):
        yield lake


def ask(writer: store.Writer, query: str) -> list[dict[str, Any]]:
    with writer.reader() as lake:
        return lake.sql(query).rows()


def test_every_score_becomes_a_claim_under_its_baseline(
    writer: store.Writer, tmp_path: Path
) -> None:
    file = write(tmp_path, "h100", [row(1)])
    summary = load(writer, file, source_revision="abc", license="GPL-3.0")
    assert summary.rows["claims"] == 5
    kernel = ids.kernel_id({"kernel.py": row(1)["custom_code"]}, "kernel.py")
    graph = ids.kernel_id({"kernel.py": row(1)["cuda_graph_code"]}, "kernel.py", "Model")
    claims = ask(writer, "FROM claims ORDER BY baseline")
    assert {c["baseline"]: c["speedup"] for c in claims} == {
        "compile": 1.5,
        "compile_reduce_overhead": 1.25,
        "cuda_graph": 1.125,
        "cudnn": 4.0,
        "eager": 2.0,
    }
    assert {c["kernel_id"] for c in claims} == {kernel}
    assert {c["gpu"] for c in claims} == {"H100"}
    assert {(c["source"], c["source_revision"], c["license"]) for c in claims} == {
        ("cuda-l1", "abc", "GPL-3.0")
    }
    assert {c["baseline"] for c in claims if c["baseline_kernel_id"]} == {"cuda_graph", "cudnn"}
    assert [c["baseline_kernel_id"] for c in claims if c["baseline"] == "cuda_graph"] == [graph]
    assert ask(writer, "FROM timings") == []


@pytest.mark.slow
def test_tasks_kernels_and_their_origin(writer: store.Writer, tmp_path: Path) -> None:
    load(writer, write(tmp_path, "h100", [row(1), row(2)]))
    (label,) = ask(writer, "FROM task_labels WHERE problem_id = 1")
    code = row(1)["ref_code"]
    assert label["task_id"] == ids.task_id(code)
    assert (label["suite"], label["suite_revision"]) == ("kernelbench", "v0")
    assert (label["name"], label["level"], label["title"]) == ("level1/1", 1, "Task 1")
    assert (label["family"], label["degenerate"]) == ("reduction", None)
    assert ask(writer, "SELECT count(*) AS n FROM splits") == [{"n": 2}]
    (stored,) = ask(writer, "SELECT k.code FROM generations JOIN kernels AS k USING (kernel_id) "
        f"WHERE task_id = '{label['task_id']}'")  # fmt: skip
    assert stored["code"] == row(1)["custom_code"]
    # Two solutions, and two baseline codes each; only the solutions are somebody's attempts.
    assert ask(writer, "SELECT count(*) AS n FROM kernels") == [{"n": 6}]
    assert ask(writer, "SELECT count(*) AS n FROM generations") == [{"n": 2}]
    assert ask(writer, "SELECT count(*) AS n FROM kernel_features") == [{"n": 6}]
    (policy,) = ask(writer, "FROM policies")
    assert (policy["policy_id"], policy["kind"], policy["stage"]) == (
        "cuda-l1",
        "released",
        "contrastive",
    )


@pytest.mark.slow
def test_a_score_without_code_is_a_claim_without_kernel(
    writer: store.Writer, tmp_path: Path
) -> None:
    absent: list[str | None] = [None, "None", "", " None\n"]
    rows = [row(1, task_id=n, custom_code=v, cuda_graph_code=v) for n, v in enumerate(absent, 1)]
    load(writer, write(tmp_path, "l40", rows))
    assert ask(writer, "SELECT kernel_id, count(*) AS n FROM claims GROUP BY ALL") == [
        {"kernel_id": None, "n": 5}
    ]
    assert ask(writer, "FROM generations") == []
    assert ask(writer, "SELECT baseline FROM claims WHERE baseline_kernel_id IS NOT NULL") == [
        {"baseline": "cudnn"}
    ]


@pytest.mark.slow
def test_absent_and_unknown_keys_are_taken_as_they_come(
    writer: store.Writer, tmp_path: Path
) -> None:
    bare = {name: row(1)[name] for name in ("level_id", "task_id", "ref_code", "score_default")}
    load(writer, write(tmp_path, "h20", [{**bare, "added_later": {"a": 1}}]))
    claims = ask(writer, "SELECT baseline, speedup FROM claims")
    assert claims == [{"baseline": "eager", "speedup": 2.0}]


@pytest.mark.slow
def test_texts_are_shared_between_gpus(writer: store.Writer, tmp_path: Path) -> None:
    for gpu in ("a100", "3090"):
        write(tmp_path, gpu, [row(1), row(2)])
    summary = load(writer, tmp_path)
    assert (summary.files, summary.rows["tasks"], summary.rows["kernels"]) == (2, 2, 6)
    assert summary.rows["generations"] == 2
    gpus = ask(writer, "SELECT DISTINCT gpu FROM claims ORDER BY gpu")
    assert [one["gpu"] for one in gpus] == ["A100", "RTX 3090"]


@pytest.mark.slow
def test_a_second_import_adds_nothing(writer: store.Writer, tmp_path: Path) -> None:
    write(tmp_path, "a100", [row(1)])
    first = load(writer, tmp_path)
    again = load(writer, tmp_path)
    assert (again.files, again.skipped, again.rows) == (0, 1, {})
    assert again.snapshot == first.snapshot
    # Another revision of the source makes other claims about the same kernels.
    other = load(writer, tmp_path, source_revision="later")
    assert other.rows == {"claims": 5, "runs": 1, "run_ends": 1}


def test_kernel_text_is_kept_to_the_byte(writer: store.Writer, tmp_path: Path) -> None:
    code = "class ModelNew:\r\n\tµ = 1\r\n\n\n"
    load(writer, write(tmp_path, "a100", [row(1, custom_code=code)]))
    assert {"code": code} in ask(writer, "SELECT code FROM kernels")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{not json", "line 2: Expecting property name"),
        ("[1]", "line 2: an object is expected, not list"),
        (json.dumps(row(2, level_id="x")), "line 2: level_id is str 'x', not a number"),
        (json.dumps(row(2, ref_code=None)), "line 2: ref_code is missing, not a text"),
        (json.dumps(row(2, ref_code="def (")), "line 2, ref_code, line 1"),
        (json.dumps(row(2, score_cudnn="fast")), "line 2: score_cudnn is str 'fast', not a number"),
        (
            json.dumps(row(2, score_default=-1.0)),
            "line 2: score_default is float -1.0, not a speedup above 0",
        ),
        (json.dumps(row(2, custom_code=7)), "line 2: custom_code is int 7, not a text"),
        (
            json.dumps(row(2, custom_code="x\ud800")),
            "line 2: custom_code holds a zero byte or a lone surrogate",
        ),
        (
            json.dumps(row(2, custom_code="x\0")),
            "line 2: custom_code holds a zero byte or a lone surrogate",
        ),
        ("[" * 100_000, "line 2 is nested too deeply"),
    ],
)
def test_a_malformed_line_is_named(
    bare_lake: store.Lake, tmp_path: Path, line: str, says: str
) -> None:
    bad = tmp_path / "h100.json"
    bad.write_text(json.dumps(row(1)) + "\n" + line + "\n" + json.dumps(row(2)) + "\n")
    with pytest.raises(ImportFailed) as raised:
        list(cuda_l1.read(tmp_path, cuda_l1.Config(), bare_lake))
    assert f"{bad}, {says}" in str(raised.value)


@pytest.mark.slow
def test_a_malformed_row_costs_that_row(
    writer: store.Writer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a100", [row(1)])
    write(tmp_path, "h100", [row(1), row(2, score_cudnn="fast")])
    assert load(writer, tmp_path).left_out == 1
    assert "h100.json, line 2 is left out: score_cudnn is str 'fast'" in caplog.text
    found = ask(writer, "SELECT DISTINCT gpu FROM claims ORDER BY 1")
    assert found == [{"gpu": "A100"}, {"gpu": "H100"}]


@pytest.mark.slow
def test_missing_numbers_are_no_scores(writer: store.Writer, tmp_path: Path) -> None:
    changes = {"score_default": float("inf"), "score_cudnn": "None", "score_cuda_graph": None}
    load(writer, write(tmp_path, "a100", [row(1, **changes)]))
    assert len(ask(writer, "FROM claims")) == 2


def test_the_older_form_is_read(writer: store.Writer, tmp_path: Path) -> None:
    task = {"task_id": 1, "ref_code": row(1)["ref_code"], "custom_code": "class ModelNew: pass"}
    text = json.dumps({"1": [{**task, "score": "6.25"}], "2": []}, indent=1)
    file = tmp_path / "codes" / "h100.json"
    file.parent.mkdir()
    file.write_text(text)
    load(writer, tmp_path)
    (claim,) = ask(writer, "FROM claims")
    assert (claim["speedup"], claim["baseline"], claim["gpu"]) == (6.25, "eager", "H100")
    assert claim["source"] == "cuda-l1/codes"
    file.write_text(text[:-5])
    with pytest.raises(ImportFailed, match="line"):
        load(writer, file)


@pytest.mark.slow
def test_the_newer_form_of_a_checkout_wins(writer: store.Writer, tmp_path: Path) -> None:
    write(tmp_path / "optimized_cuda_code", "h100", [row(1)])
    write(tmp_path, "package", [{"name": "not of the release"}])
    head = tmp_path / ".git" / "HEAD"
    head.parent.mkdir()
    head.write_text("a" * 40 + "\n")
    load(writer, tmp_path)
    assert ask(writer, "SELECT DISTINCT source_revision FROM claims") == [
        {"source_revision": "a" * 40}
    ]


def test_a_folder_without_files_says_what_is_wanted(writer: store.Writer, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="optimized_cuda_code"):
        load(writer, tmp_path)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake with the real release and the published figures; skips without the data."""
    named = os.environ.get("FLYWHEEL_CUDA_L1")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "cuda-l1"
    if not folder.is_dir():
        pytest.skip("the CUDA-L1 release is not on disk; name its folder in FLYWHEEL_CUDA_L1")
    url = str(tmp_path_factory.mktemp("release") / "lake")
    with store.writer(url, author="tests") as writer:
        run_import(writer, cuda_l1, folder, cuda_l1.Config(source_revision="51e8356"))
        run_import(writer, published, None, published.Config())
        with writer.reader() as lake:
            yield lake


def audit(lake: store.Lake, name: str) -> list[dict[str, Any]]:
    return lake.sql((AUDIT / f"{name}.sql").read_text()).rows()


@pytest.mark.slow
def test_the_headline_means_come_out_of_the_release(release: store.Lake) -> None:
    columns = (
        *("gpu", "with_code", "mean_with_code", "scored", "mean_scored", "mean_missing_as_1"),
        *("published", "geomean_with_code", "highest", "top_5_share"),
    )
    rows = [tuple(one[name] for name in columns) for one in audit(release, "headline_means")]
    assert rows == [
        ("A100", 225, 3.138, 241, 3.045, 2.971, 3.12, 1.770, 110.771, 0.35),
        ("H100", 210, 4.292, 227, 4.144, 3.855, 3.85, 1.718, 368.2, 0.54),
        ("H20", 219, 2.520, 233, 2.483, 2.382, 2.38, 1.691, 63.717, 0.28),
        ("L40", 213, 3.441, 230, 3.312, 3.127, 3.13, 1.649, 182.301, 0.50),
        ("RTX 3090", 197, 2.874, 213, 2.776, 2.513, 2.51, 1.605, 114.462, 0.42),
    ]


@pytest.mark.slow
def test_orphan_scores_per_gpu(release: store.Lake) -> None:
    rows = audit(release, "orphan_scores")
    assert {one["gpu"]: one["orphan_scores"] for one in rows} == {
        "A100": 16,
        "H100": 17,
        "RTX 3090": 16,
        "L40": 17,
        "H20": 14,
    }
    assert max(one["highest"] for one in rows) == 7.21


@pytest.mark.slow
def test_distinct_texts(release: store.Lake) -> None:
    assert audit(release, "distinct_texts") == [
        {"rows_with_code": 1064, "distinct_texts": 415, "on_two_gpus_or_more": 323}
    ]


@pytest.mark.slow
def test_texts_identical_to_the_a100_ones(release: store.Lake) -> None:
    rows = audit(release, "same_as_a100")
    assert [(one["gpu"], one["identical"], one["code_on_both"]) for one in rows] == [
        ("H100", 113, 200),
        ("RTX 3090", 115, 192),
        ("L40", 115, 201),
        ("H20", 124, 212),
    ]


@pytest.mark.slow
def test_the_highest_scores(release: store.Lake) -> None:
    highest: dict[str, tuple[str, float]] = {}
    for one in audit(release, "top_scores"):
        highest.setdefault(one["gpu"], (one["task"], one["speedup"]))
    assert highest == {
        "A100": ("level2/83", 110.771),
        "H100": ("level2/96", 368.2),
        "H20": ("level2/83", 63.717),
        "L40": ("level2/83", 182.301),
        "RTX 3090": ("level2/83", 114.462),
    }


@pytest.mark.slow
def test_what_the_solutions_are_made_of(release: store.Lake) -> None:
    a100 = audit(release, "device_code")[0]
    assert (a100["gpu"], a100["with_code"], a100["pytorch_only"]) == ("A100", 225, 140)
    assert a100["pytorch_share"] == 0.62
    assert (a100["torch_jit"], a100["torch_compile"]) == (29, 10)


@pytest.mark.slow
def test_scored_code_that_is_cut_off(release: store.Lake) -> None:
    rows = audit(release, "scored_but_broken")
    assert [(one["task"], one["gpu"], one["speedup"]) for one in rows] == [
        ("level3/26", "A100", 2.113),
        ("level3/26", "H100", 3.126),
        ("level3/26", "H20", 1.681),
    ]


@pytest.mark.slow
def test_the_release_is_split_by_the_stated_rule(release: store.Lake) -> None:
    from store.code.task_families import choose_test

    labels = release.sql("SELECT family, level FROM task_labels").rows()
    names, levels = [one["family"] for one in labels], [one["level"] for one in labels]
    stored = release.sql("SELECT family FROM splits WHERE split = 'test'").rows()
    assert {one["family"] for one in stored} == choose_test("kernelbench", names, levels)
    sides = release.sql(
        "SELECT level, split, count(*) AS n FROM task_labels JOIN splits USING (suite, family) "
        "GROUP BY ALL ORDER BY ALL"
    ).rows()
    assert [(one["level"], one["split"], one["n"]) for one in sides] == [
        (1, "test", 19),
        (1, "train", 81),
        (2, "test", 20),
        (2, "train", 80),
        (3, "test", 8),
        (3, "train", 42),
    ]


def test_every_audit_query_says_what_it_asks() -> None:
    for file in AUDIT.glob("*.sql"):
        assert file.read_text().startswith("-- "), file
