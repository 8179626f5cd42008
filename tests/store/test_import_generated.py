"""Generated tasks: the same bytes for a seed, whole families on one side, texts that parse."""

from __future__ import annotations

import ast
import hashlib
import re
import shutil
import statistics
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import commands
import pytest

import store
from store import ids
from store.errors import ImportFailed, UnknownName
from store.generated.writing import families
from store.generated.writing.texts import Task, count_operations, describe_kernel
from store.importers import generated
from store.importers.reading.pieces import ImportSummary, run_import

NAMES = families.family_names()


@cache
def draw(count: int, seed: int = 0, names: tuple[str, ...] = NAMES) -> list[tuple[str, Task]]:
    return list(islice(families.generate_tasks(names, seed), count))


def rows(writer: store.Writer, query: str) -> list[dict[str, Any]]:
    with writer.reader() as lake:
        return lake.sql(query).rows()


def load(writer: store.Writer, **options: Any) -> ImportSummary:
    return run_import(writer, generated, None, generated.Config(**options))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with a task of every family, which tests read and do not write."""
    made = str(tmp_path_factory.mktemp("generated") / "lake")
    with store.writer(made, author="tests") as writer:
        load(writer, count=len(NAMES), seed=4)
    return made


@pytest.fixture(scope="module")
def lake(url: str) -> Iterator[store.Lake]:
    with store.open(url) as opened:
        yield opened


@pytest.fixture
def copied_writer(url: str, tmp_path: Path) -> Iterator[store.Writer]:
    """Return a writer of a copy of the lake: faster than a lake of its own."""
    shutil.copytree(url, tmp_path / "lake")
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        yield writer


@pytest.mark.parametrize("count", [360, pytest.param(5000, marks=pytest.mark.slow)])
def test_all_tasks_of_one_seed_are_distinct(count: int) -> None:
    drawn = draw(count)
    assert len({ids.task_id(task.code) for _, task in drawn}) == count
    assert {task.level for _, task in drawn} == {1, 2, 3}


def test_the_same_seed_gives_the_same_bytes_and_a_larger_count_goes_on() -> None:
    assert draw(50) == draw(90)[:50]
    assert draw(18, seed=1) != draw(18, seed=2)


def test_a_family_gives_the_same_tasks_whatever_the_others_are() -> None:
    alone = [task for _, task in draw(5, names=("norm",))]
    among = [task for name, task in draw(5 * len(NAMES)) if name == "norm"]
    assert alone == among


def test_texts_change_only_with_the_revision() -> None:
    """Raise SUITE_REVISION, then put the digest that is shown here in its place."""
    digest = hashlib.sha256()
    for name, task in draw(180):
        texts = [name, task.code, task.analysis]
        for kernel in task.kernels:
            texts += [kernel.code, describe_kernel(kernel)]
        for text in texts:
            digest.update(text.encode())
    assert (generated.SUITE_REVISION, digest.hexdigest()[:16]) == ("v3", "7858c4fc1936126d")


def test_every_text_is_python_and_kernels_are_short() -> None:
    sizes: dict[str, list[int]] = {}
    for _, task in draw(90):
        stated = ast.parse(task.code).body
        defined = {one.name for one in stated if isinstance(one, ast.ClassDef | ast.FunctionDef)}
        assert {"Model", "get_inputs", "get_init_inputs"} <= defined
        for kernel in task.kernels:
            ast.parse(kernel.code)
            assert "class ModelNew(nn.Module):" in kernel.code
            sizes.setdefault(kernel.language, []).append(len(kernel.code))
    assert {name: statistics.median(found) < 1500 for name, found in sizes.items()} == {
        name: True for name in ("torch", "cpp", "triton", "cuda")
    }
    assert max(max(found) for found in sizes.values()) < 2500


def test_compiled_sources_have_no_syntax_error() -> None:
    import tree_sitter
    import tree_sitter_cuda

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cuda.language()))
    for _, task in draw(90):
        for kernel in task.kernels:
            if kernel.language in ("cpp", "cuda"):
                source = kernel.code.split('r"""')[1].split('"""')[0]
                # A pragma of OpenMP is none of the grammar's business.
                lines = [line for line in source.splitlines() if not line.startswith("  #")]
                tree = parser.parse("\n".join(lines).encode())
                assert not tree.root_node.has_error, f"{task.title}, {kernel.variant}\n{source}"


def test_every_task_has_right_and_wrong_kernels_for_both_devices() -> None:
    for name, task in draw(90):
        variants = [kernel.variant for kernel in task.kernels]
        assert len(variants) == len(set(variants)), name
        right = [kernel.language for kernel in task.kernels if kernel.right]
        assert min(right.count(language) for language in ("torch", "cpp", "triton")) >= 1
        assert right.count("cuda") >= 1
        assert right.count("torch") + right.count("cpp") >= 4
        assert sum(not kernel.right for kernel in task.kernels) >= 2
        assert all(kernel.right != kernel.variant.startswith("wrong") for kernel in task.kernels)


@pytest.mark.slow
def test_a_reference_reads_its_inputs_and_draws_nothing(lake: store.Lake) -> None:
    for row in lake.sql("SELECT code FROM tasks").rows():
        model = row["code"].split("class Model")[1].split("def get_inputs")[0]
        forward = model.split("def forward")[1]
        assert "rand" not in forward
        inputs = forward.split("(self, ")[1].split(")")[0].split(", ")
        names = {node.id for node in ast.walk(ast.parse(row["code"])) if isinstance(node, ast.Name)}
        assert set(inputs) <= names


@pytest.mark.slow
def test_whole_families_are_on_one_side(lake: store.Lake) -> None:
    splits = {row["family"]: row["split"] for row in lake.sql("FROM splits").rows()}
    assert set(splits) == set(NAMES)
    assert {name for name, side in splits.items() if side == "test"} == {
        "softmax",
        "stencil",
        "triangular",
        "tuned_window",
    }
    labelled = lake.sql(
        "SELECT family, count(*) AS tasks FROM task_labels WHERE suite = 'generated' GROUP BY ALL"
    ).rows()
    assert {row["family"]: row["tasks"] for row in labelled} == dict.fromkeys(NAMES, 1)


def test_no_kernel_belongs_to_both_sides() -> None:
    sides: dict[str, set[str]] = {}
    for name, task in draw(180):
        for kernel in task.kernels:
            sides.setdefault(kernel.code, set()).add(families.load_family(name).SPLIT)
    assert {len(found) for found in sides.values()} == {1}


def test_what_the_extractor_sees_is_what_the_teacher_wrote(lake: store.Lake) -> None:
    """`evaluators run` picks kernels for a device by it."""
    seen = lake.sql(
        "SELECT DISTINCT policy_id, language FROM generations "
        "JOIN features USING (kernel_id) WHERE policy_id <> 'teacher-wrong'"
    ).rows()
    assert {(row["policy_id"], row["language"]) for row in seen} == {
        ("teacher-torch", "pytorch"),
        ("teacher-cpp", "cpp"),
        ("teacher-triton", "triton"),
        ("teacher-cuda", "cuda"),
    }


def test_every_attempt_says_why(lake: store.Lake) -> None:
    """The reference's costs, true of its text, and what the kernel does; in lines of no form."""
    found = lake.sql(
        "SELECT analysis, design, code FROM generations JOIN kernels USING (kernel_id)"
    )
    for row in found.rows():
        assert row["analysis"].startswith("The reference is ")
        # The first line of the text says what the kernel does.
        assert row["design"].startswith(row["code"].split('"""')[1])
        assert "\n" not in row["analysis"] + row["design"]


def test_operations_of_a_reference_are_counted() -> None:
    count = count_operations
    assert count(["v = x", "v = torch.relu(x)"]) == 1
    assert count(["v = 0.5 * torch.roll(x, (-1, 0), (0, 1))", "v = v + 0.1 * x"]) == 4
    # Views, shapes and indices are no operations.
    assert count(["rows, cols = x.shape", "v = x.transpose(1, 2)[0, 1 + rows : cols - 1]"]) == 0
    assert count(["v = torch.diagonal(x @ y.t())", "v = v.max(dim=1).values"]) == 2


@pytest.mark.slow
def test_importing_again_adds_nothing_and_more_goes_on(copied_writer: store.Writer) -> None:
    before = {row["task_id"] for row in rows(copied_writer, "SELECT task_id FROM tasks")}
    assert load(copied_writer, count=len(NAMES), seed=4).rows == {}
    assert load(copied_writer, count=len(NAMES) + 2, seed=4, kernels="none").rows["tasks"] == 2
    after = {row["task_id"] for row in rows(copied_writer, "SELECT task_id FROM tasks")}
    assert before < after
    assert len(after) == len(before) + 2


def test_a_gpu_has_its_own_sizes(lake: store.Lake) -> None:
    found = lake.sql("SELECT task_id, name, axes, code FROM workloads JOIN tasks USING (task_id)")
    for row in found.rows():
        axes = ast.literal_eval(row["axes"])
        stated = {line.split(" = ")[0] for line in row["code"].splitlines() if " = " in line}
        assert set(axes) <= stated
        assert (row["name"] == "default") == (axes == {})


def test_kernels_may_be_left_out(lake: store.Lake) -> None:
    config = generated.Config(count=3, kernels="none", families=("norm",))
    [bundle] = generated.read(None, config, lake)
    assert {"kernels", "generations", "policies"}.isdisjoint(bundle.tables)
    assert len(bundle.tables["tasks"]) == 3


def read_refused(lake: store.Lake, path: Path | None = None, **options: Any) -> None:
    list(generated.read(path, generated.Config(**options), lake))


def test_an_unknown_family_is_refused_with_the_nearest(lake: store.Lake) -> None:
    with pytest.raises(UnknownName) as raised:
        read_refused(lake, families=("elementwise", "softmx"))
    assert raised.value.hint == 'Did you mean "softmax"?'


@pytest.mark.parametrize("count", [0, -3])
def test_a_count_below_one_is_refused(lake: store.Lake, count: int) -> None:
    with pytest.raises(ImportFailed, match="too few"):
        read_refused(lake, count=count)


def test_a_path_is_refused(lake: store.Lake, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="takes no path"):
        read_refused(lake, tmp_path)


@pytest.mark.slow
def test_a_second_family_without_its_option_says_how_to_give_it(tmp_path: Path) -> None:
    words = ["store", "import", "generated", "--lake", "lake", "--families", "tuned_rows"]
    done = commands.run([*words, "tuned_columns"], cwd=tmp_path)
    assert done.returncode == 1
    assert "takes no path, but tuned_columns was given" in done.stderr
    assert "--families tuned_columns" in done.stderr


@pytest.mark.slow
def test_held_out_tasks_are_a_test_side_of_their_own(copied_writer: store.Writer) -> None:
    both = ("tuned_rows", "tuned_window")
    known = {row["task_id"] for row in rows(copied_writer, "SELECT task_id FROM tasks")}
    for _ in range(2):
        load(copied_writer, count=4, held_out=True, kernels="none", families=both)
    found = rows(
        copied_writer,
        "SELECT family, split, task_id FROM task_names WHERE ends_with(family, ':held-out')",
    )
    assert sorted((row["family"], row["split"]) for row in found) == [
        (f"{name}:held-out", "test") for name in both for _ in range(2)
    ]
    assert not known & {row["task_id"] for row in found}


def test_tasks_with_a_number_of_steps_are_those_of_all_tasks_that_have_it() -> None:
    names = ("tuned_rows", "tuned_window")
    everything = draw(120, names=names)
    chosen = list(islice(families.generate_tasks(names, 0, steps=1), 12))
    assert [family for family, _ in chosen] == list(names) * 6
    for name in names:
        single = [task.code for family, task in everything if family == name and task.steps == 1]
        assert [task.code for family, task in chosen if family == name] == single[:6]
    assert all(
        "," not in task.title.partition(": ")[2].removesuffix(", sum") for _, task in chosen[::2]
    )


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("family", "steps"), [("norm", 1), ("tuned_rows", 9)])
def test_a_number_of_steps_that_a_family_does_not_have_is_refused(
    lake: store.Lake, family: str, steps: int
) -> None:
    with pytest.raises(ImportFailed, match=f"{family} has no tasks with --steps {steps}"):
        read_refused(lake, families=(family,), steps=steps)


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("tuned_")])
def test_settings_of_a_tuned_kernel_differ_in_their_constants_alone(name: str) -> None:
    for _, task in draw(6, names=(name,)):
        for language in ("cpp", "triton", "cuda"):
            texts = [
                kernel.code.splitlines()
                for kernel in task.kernels
                if f"{language}_tuned" in kernel.variant
            ]
            assert len(texts) >= 4
            for lines in zip(*texts, strict=True):
                if len(set(lines)) == 1:
                    continue
                setting = [re.fullmatch(r"([A-Z_]+) = (\d+)  # ([\d, ]+)", line) for line in lines]
                assert all(setting)
                for one in setting:
                    assert one is not None
                    assert one[2] in one[3].split(", ")
                assert len({(one[1], one[3]) for one in setting if one}) == 1
