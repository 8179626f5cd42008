"""A folder of one's own tasks and candidates becomes rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import store
from store import ids
from store.errors import ImportFailed
from store.importers import kernels
from store.importers.reading import task_formats
from store.importers.reading.pieces import ImportSummary, run_import

TASK = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{name}(x)

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""
KERNEL = """import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.{name}()
"""
CUDA = "__global__ void go(float* x) { x[threadIdx.x] = 0; }\n"


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return two tasks; the first with a candidate of one file and one of two."""
    root = tmp_path / "mine"
    write(root / "tasks/fast_relu.py", TASK.format(name="relu"))
    write(root / "tasks/total.py", TASK.format(name="sum"))
    write(root / "kernels/fast_relu/plain.py", KERNEL.format(name="relu"))
    write(root / "kernels/fast_relu/cuda/kernel.py", KERNEL.format(name="abs"))
    write(root / "kernels/fast_relu/cuda/csrc/go.cu", CUDA)
    write(root / "kernels/fast_relu/cuda/__pycache__/kernel.pyc", "cache")
    return root


@pytest.fixture(scope="module")
def no_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake without rows, for folders that are refused before anything is stored."""
    url = str(tmp_path_factory.mktemp("empty") / "lake")
    store.writer(url, author="tests").close()
    with store.open(url) as lake:
        yield lake


def load(writer: store.Writer, root: Path, **options: Any) -> ImportSummary:
    return run_import(writer, kernels, root, kernels.Config(**options))


def rows(writer: store.Writer, query: str) -> list[dict[str, Any]]:
    with writer.reader() as lake:
        return lake.sql(query).rows()


def test_tasks_and_candidates_are_stored_under_the_folders_name(
    writer: store.Writer, folder: Path
) -> None:
    summary = load(writer, folder)
    assert (summary.files, summary.rows["tasks"], summary.rows["kernels"]) == (2, 2, 2)
    labels = rows(writer, "SELECT suite, suite_revision, name, title, family FROM task_labels")
    assert {(row["suite"], row["suite_revision"]) for row in labels} == {("mine", "local")}
    assert {(row["name"], row["title"]) for row in labels} == {
        ("fast_relu", "fast relu"),
        ("total", "total"),
    }
    stored = rows(
        writer,
        "SELECT k.*, p.kind, f.language, f.global_functions FROM kernels k "
        "JOIN generations g USING (kernel_id) JOIN policies p USING (policy_id) "
        "JOIN kernel_features f USING (kernel_id) ORDER BY k.source",
    )
    assert [row["source"] for row in stored] == ["mine/fast_relu/cuda", "mine/fast_relu/plain"]
    assert stored[0]["path"] == "kernel.py"
    assert stored[0]["other_files"] == [{"path": "csrc/go.cu", "code": CUDA}]
    assert stored[0]["global_functions"] == 1
    assert stored[1]["other_files"] is None
    assert stored[1]["kernel_id"] == ids.kernel_id(
        {"kernel.py": KERNEL.format(name="relu")}, "kernel.py"
    )
    assert {row["kind"] for row in stored} == {"person"}
    assert {row["license"] for row in stored} == {None}


@pytest.mark.slow
def test_both_sides_of_the_split_are_decided_over_the_whole_folder(
    writer: store.Writer, folder: Path
) -> None:
    load(writer, folder)
    assert {row["split"] for row in rows(writer, "SELECT split FROM splits")} == {"train", "test"}


@pytest.mark.slow
def test_a_new_candidate_adds_only_itself(writer: store.Writer, folder: Path) -> None:
    load(writer, folder)
    assert load(writer, folder).rows == {}
    write(folder / "kernels/total/ones.py", KERNEL.format(name="sum"))
    # The same text under another name is the kernel that is there.
    write(folder / "kernels/fast_relu/again.py", KERNEL.format(name="relu"))
    summary = load(writer, folder)
    runs = {"runs": 2, "run_ends": 2}
    assert summary.rows == {"kernels": 1, "kernel_features": 1, "generations": 1, **runs}
    assert summary.skipped == 0


@pytest.mark.slow
def test_options_name_suite_policy_entry_and_license(writer: store.Writer, folder: Path) -> None:
    load(writer, folder, suite="lab", policy="ada", license="MIT", entry_point="Fast")
    found = rows(
        writer,
        "SELECT DISTINCT l.suite, g.policy_id, k.license, k.entry_point FROM generations g "
        "JOIN kernels k USING (kernel_id) JOIN task_labels l USING (task_id)",
    )
    assert found == [{"suite": "lab", "policy_id": "ada", "license": "MIT", "entry_point": "Fast"}]


@pytest.mark.slow
def test_a_candidate_without_modelnew_has_another_entry_point(
    writer: store.Writer, folder: Path
) -> None:
    names = {
        "submission.py": "def custom_kernel(x):\n    return x.relu()\n",
        "copy.py": "class Model: ...\n",
        "none.py": "def fast(x):\n    return x.relu()\n",
    }
    for name, text in names.items():
        write(folder / "kernels/fast_relu" / name, text)
    load(writer, folder)
    query = "SELECT DISTINCT entry_point FROM kernels WHERE contains(code, $$class ModelNew$$)"
    assert rows(writer, query) == [{"entry_point": "ModelNew"}]
    query = "SELECT code, entry_point FROM kernels WHERE NOT contains(code, $$class ModelNew$$)"
    stored = {row["code"]: row["entry_point"] for row in rows(writer, query)}
    expected = ("custom_kernel", "Model", "ModelNew")
    assert stored == dict(zip(names.values(), expected, strict=True))


@pytest.mark.slow
def test_one_task_with_its_candidates_beside_it(writer: store.Writer, tmp_path: Path) -> None:
    root = tmp_path / "softsign"
    write(root / "task.py", TASK.format(name="relu"))
    write(root / "plain.py", KERNEL.format(name="relu"))
    write(root / "deep/kernel.py", KERNEL.format(name="abs"))
    write(root / "notes.txt", "ignored")
    summary = load(writer, root)
    assert (summary.rows["tasks"], summary.rows["kernels"]) == (1, 2)
    assert rows(writer, "SELECT name FROM task_labels") == [{"name": "softsign"}]


def test_a_candidate_that_does_not_parse_is_a_row(writer: store.Writer, folder: Path) -> None:
    write(folder / "kernels/total/broken.py", "class ModelNew(:\n")
    assert load(writer, folder).rows["kernels"] == 3
    parsed = rows(writer, "SELECT count(*) AS n FROM kernel_features WHERE NOT parsed")
    assert parsed == [{"n": 1}]


def spoil(name: str, text: str) -> Any:
    return lambda root: write(root / name, text)


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (spoil("kernels/fast_rely/a.py", "x"), 'no tasks/fast_rely.py\nDid you mean "fast_relu"'),
        (spoil("kernels/total/two/main.py", "x"), "holds no kernel.py"),
        (spoil("kernels/total/none.py", " \n"), "is empty"),
        (spoil("kernels/fast_relu/cuda.py", "x"), "holds two candidates cuda"),
        (spoil("tasks/extra.py", "x = 1"), "does not define Model"),
        (
            lambda root: (root / "kernels/fast_relu/leak.py").symlink_to("/etc/passwd"),
            "a link to /etc/passwd",
        ),
        (
            lambda root: (root / "kernels/fast_relu/cuda/a.so").write_bytes(b"\x7fELF\xff"),
            "a.so is not UTF-8",
        ),
    ],
)
def test_what_cannot_be_imported_is_named(
    no_rows: store.Lake, folder: Path, prepare: Any, message: str
) -> None:
    prepare(folder)
    with pytest.raises(ImportFailed, match=message):
        list(kernels.read(folder, kernels.Config(), no_rows))


def test_a_task_without_constructor_arguments_is_that_of_evaluators_check(
    no_rows: store.Lake, folder: Path
) -> None:
    file = folder / "tasks/bare.py"
    write(file, "class Net: ...\nModel = Net\n\ndef get_inputs():\n    return []\n")
    [bare] = [
        bundle.tables["tasks"][0]
        for bundle in kernels.read(folder, kernels.Config(), no_rows)
        if "bare" in bundle.message
    ]
    assert bare["task_id"] == ids.task_id(task_formats.read_task_path(file).code)


def test_an_empty_folder_shows_the_layout(no_rows: store.Lake, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=r"holds no tasks\nLay it out as tasks/NAME.py"):
        list(kernels.read(tmp_path, kernels.Config(), no_rows))


def test_a_native_file_is_a_candidate_and_a_lake_beside_it_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "tasks/fast_relu.py", TASK.format(name="relu"))
    write(tmp_path / "kernels/fast_relu/go.cu", CUDA)
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        load(writer, tmp_path)
        [kernel] = rows(writer, "FROM kernels")
    assert (kernel["path"], kernel["entry_point"]) == ("kernel.py", "forward")
    assert kernel["other_files"] == [{"path": "go.cu", "code": CUDA}]
    assert "not read" not in caplog.text
