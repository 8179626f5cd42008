"""The command line, in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import commands
import pytest

import store


@pytest.fixture
def pipelines(tmp_path: Path):
    """Return a function that runs `pipelines` in a temporary folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return commands.run(["pipelines", *arguments], cwd=tmp_path)

    return run


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['pipelines', '--help']\n"
        "from pipelines.cli.app import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'duckdb', 'pyarrow', 'jinja2', 'datasets', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path)


def test_list_names_every_pipeline(pipelines) -> None:
    done = pipelines("list", "--format", "json")
    assert {row["pipeline"] for row in json.loads(done.stdout)} == {
        "contrastive-batch",
        "improvement-pairs",
        "preference-pairs",
        "repair-pairs",
        "rl-prompts",
        "self-supervised",
        "sft",
    }


def test_show_explains_a_pipeline(pipelines) -> None:
    done = pipelines("show", "preference-pairs")
    assert "--margin" in done.stdout
    assert "pairs.sql" in done.stdout
    typo = pipelines("show", "preference-pair")
    assert typo.returncode == 1
    assert 'Did you mean "preference-pairs"?' in typo.stderr


@pytest.mark.slow
def test_a_run_ends_in_one_line_that_names_dataset_and_snapshot(
    pipelines, rows_and_ids, lake_of, tmp_path: Path
) -> None:
    lake = lake_of(rows_and_ids[0])
    done = pipelines("run", "contrastive-batch", "--lake", lake.url)
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "datasets" / "contrastive-batch").iterdir()
    shown = folder.relative_to(tmp_path)
    assert done.stdout == f"contrastive-batch: 3 rows → {shown} (snapshot {lake.snapshot})\n"
    for fact in ("rows       3", "bytes / 4", "1 task: test split", "1 kernel: quarantined"):
        assert fact in done.stderr
    again = pipelines("run", "contrastive-batch", "--lake", lake.url, "--at", str(lake.snapshot))
    assert again.stdout == done.stdout
    assert "already has a record of this dataset" in again.stderr
    with store.open(lake.url) as later:
        assert later.snapshot == lake.snapshot + 1


def test_a_dry_run_shows_counts_and_a_row_and_writes_nothing(
    pipelines, small_url: str, tmp_path: Path
) -> None:
    done = pipelines("run", "sft", "--lake", small_url, "--dry-run")
    assert done.returncode == 0
    assert "rows       5 prompt-completion" in done.stdout
    assert "--- first row, completion, assistant ---" in done.stdout
    assert list(tmp_path.iterdir()) == []
    with store.open(small_url) as lake:
        assert lake.snapshot == 2


def test_json_gives_the_same_facts(pipelines, small_url: str) -> None:
    done = pipelines(
        "run", "rl-prompts", "--lake", small_url, "--dry-run", "--format", "json", "--limit", "2"
    )
    facts = json.loads(done.stdout)
    assert facts["rows"] == 2
    assert facts["splits"] == {"train": 2}
    assert facts["example"]["prompt"][0]["role"] == "user"


@pytest.mark.slow
def test_explain_draws_a_chart(pipelines, small_url: str) -> None:
    done = pipelines("run", "contrastive-batch", "--lake", small_url, "--explain", "relu")
    assert done.returncode == 0, done.stderr
    assert "█" in done.stdout
    refused = pipelines("run", "sft", "--lake", small_url, "--explain", "relu")
    assert refused.returncode == 1
    assert "contrastive-batch --explain" in refused.stderr
    assert "--explain" in pipelines("run", "contrastive-batch", "--help").stdout
    assert "--explain" not in pipelines("run", "improvement-pairs", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "contrastiv-batch"), 2, "contrastive-batch"),
        (("run", "contrastive-batch", "--temprature", "1"), 2, "temperature"),
        (("run", "sft", "--lake", "nowhere"), 1, "store init"),
        (("run", "sft", "--limit", "0"), 1, "limit"),
        (("run", "sft", "--limit", str(2**63)), 1, "limit"),
        (("run", "sft", "--name", "../x"), 1, "cannot name a dataset"),
    ],
)
def test_refusals_say_what_to_do(pipelines, arguments, code, words) -> None:
    done = pipelines(*arguments)
    assert words in done.stdout + done.stderr
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_a_pipeline_of_ones_own_is_one_file(pipelines, small_url: str, tmp_path: Path) -> None:
    readme = (Path(store.__file__).parent.parent / "pipelines" / "README.md").read_text("utf-8")
    section = readme.partition("## Add a pipeline\n")[2]
    example = section.partition("```python\n")[2].partition("```")[0]
    folder = tmp_path / "flywheel" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "short_tasks.py").write_text(example)
    assert "short-tasks" in pipelines("list", "--format", "csv").stdout
    done = pipelines("run", "short-tasks", "--lake", small_url, "--dry-run", "--most-lines", "40")
    assert done.returncode == 0, done.stderr
    assert "rows       4 prompt-only" in done.stdout


def test_a_file_without_the_contract_is_refused(pipelines, small_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "flywheel" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "half.py").write_text('"""Half a pipeline."""\n\nTEMPLATE = "one_shot.j2"\n')
    done = pipelines("run", "half", "--lake", small_url)
    assert done.returncode == 1
    assert "defines no Config, DATASET_TYPE, render, select" in done.stderr


def test_a_file_that_is_no_python_is_refused_by_name(
    pipelines, small_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "flywheel" / "pipelines"
    folder.mkdir(parents=True)
    (folder / "broken.py").write_text("TEMPLATE = 1\ndef select(:\n")
    (folder / "binary.py").write_bytes(b"\xff\x00")
    assert "broken" in pipelines("list", "--format", "csv").stdout
    for name, where in (("broken", "line 2"), ("binary", "")):
        done = pipelines("run", name, "--lake", small_url)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{name}.py is not Python" in done.stderr
        assert where in done.stderr
        assert "Traceback" not in done.stderr


OF_ONES_OWN = '''"""A pipeline with a fault."""

from dataclasses import dataclass

import pipelines

DATASET_TYPE = "prompt-only"
TEMPLATE = "own.j2"


@dataclass(frozen=True, kw_only=True)
class Config:
    """No options."""


def select(lake, config, request):
    tasks = pipelines.select_tasks(lake, request)
    rows = pipelines.query(
        lake, "SELECT task_id, [] AS kernel_ids FROM asked ORDER BY task_id", asked=tasks.rows
    )
    return pipelines.Selection(rows=rows, dropped=tasks.dropped)


def render(row):
    return {"prompt": [{"role": "user", "content": pipelines.render(TEMPLATE, row=row)}]}
'''


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("code", "faulty", "words"),
    [
        ("row=row)}", "row=1 / 0)}", "flywheel/pipelines/own.py, line 25: ZeroDivisionError"),
        ("row=row)", "r=row)", "template own.j2, line 1: UndefinedError: 'row' is undefined"),
        ("return pipelines.Selection(", "return dict(", "select() returns no Selection"),
        ('{"prompt": [', '{"chosen": [', "render() returns no dict with prompt"),
        ('{"role"', '{"name"', 'no list of {"role": TEXT, "content": TEXT}'),
        ("pipelines.render(TEMPLATE, row=row)", '"\\ud800"', 'no list of {"role": TEXT'),
        ("SELECT task_id,", "SELECT 'x' AS task_id,", "'x', which is no task or kernel"),
        ("SELECT task_id,", "SELECT NULL AS task_id,", "select() gives rows without task_id"),
        ('"prompt-only"', '"prompts-only"', 'Did you mean "prompt-only"?'),
        ('"own.j2"', '"broken.j2"', "template broken.j2, line 2: TemplateSyntaxError"),
        ('"""No options."""', "most: int", "a default for every field"),
        ("@dataclass(frozen=True, kw_only=True)", "", "is no dataclass"),
    ],
)
def test_a_fault_in_a_pipeline_of_ones_own_is_named_with_its_place(
    code: str, faulty: str, words: str, pipelines, small_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "flywheel" / "pipelines"
    (folder / "templates").mkdir(parents=True)
    (folder / "templates" / "own.j2").write_text("{{ row.task.code }}")
    (folder / "templates" / "broken.j2").write_text("\n{% if row %}")
    assert OF_ONES_OWN.count(code) == 1
    (folder / "own.py").write_text(OF_ONES_OWN.replace(code, faulty))
    done = pipelines("run", "own", "--lake", small_url)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr
    assert not any(file.is_file() for file in tmp_path.glob("datasets/**/*"))
