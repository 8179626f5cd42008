"""A second evaluator in one file: its options, its version and its rows, with the real command."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest

import store
from evaluators import judge
from evaluators.scheduling import contract
from evaluators.scheduling.run import Selection, find_pending
from store.errors import FlywheelError, UnknownName

SHORT = "class ModelNew:\n    pass\n"
LONG = SHORT + "#" * 120 + "\n"
PARTS = {
    "VERSION": "VERSION = 1",
    "Config": (
        "import dataclasses\n@dataclasses.dataclass(frozen=True, kw_only=True)\n"
        "class Config:\n    most: int = 1"
    ),
    "judge": "def judge(case, bench, config): return {}",
}


def documented_example() -> str:
    """Return the evaluator that the contract's documentation shows."""
    _, _, rest = str(contract.__doc__).partition("A complete evaluator:\n\n")
    lines = [line for line in rest.splitlines() if not line or line.startswith("    ")]
    return textwrap.dedent("\n".join(lines))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the user's own evaluators, below the working directory."""
    folder = tmp_path / "flywheel" / "evaluators"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def line_length(own: Path) -> Path:
    """Return the file of the evaluator in the documentation."""
    file = own / "line_length.py"
    file.write_text(documented_example())
    return file


@pytest.fixture
def lake_with_kernels(lake_url: str) -> str:
    """Return a lake with a task and two kernels for it, one with a long line."""
    task, policy = b.task(), b.policy()
    kernels = [b.kernel(code=code, path=f"{len(code)}.py") for code in (SHORT, LONG)]
    rows: dict[str, Any] = {
        "tasks": [task],
        "task_labels": [b.label(task)],
        "workloads": [b.workload(task)],
        "kernels": kernels,
        "policies": [policy],
        "generations": [b.generation(policy, task, kernel) for kernel in kernels],
    }
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows, "rows")
    return lake_url


def evaluators(*arguments: str) -> int:
    """Run the command, pass on what it prints, and return its exit code."""
    done = commands.run(["evaluators", *arguments], cwd=Path.cwd())
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.returncode


def verdicts(url: str) -> list[dict[str, Any]]:
    """Return the stored evaluations."""
    query = (
        "SELECT length(code) AS length, evaluator, evaluator_version, status FROM evaluations "
        "JOIN kernels USING (kernel_id) ORDER BY evaluator_version, length"
    )
    with store.open(url) as lake:
        return lake.sql(query).rows()


def test_the_member_of_this_room_follows_the_contract() -> None:
    assert contract.load("judge") is judge
    assert contract.load_default() is judge
    assert contract.name_of(contract.load("judge")) == "judge"
    assert contract.find_confirm_win(contract.load("judge")) is judge.confirm_win


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *(
            ("\n".join(part for name, part in PARTS.items() if name != left_out), left_out)
            for left_out in PARTS
        ),
        ("\n".join((*PARTS.values(), "VERSION = 0")), "VERSION"),
        ("\n".join((*PARTS.values(), "VERSION = True")), "VERSION"),
        ("\n".join((*PARTS.values(), "Config = dict")), "Config"),
        ("\n".join(PARTS.values()).replace("int = 1", "int"), "default"),
        ("\n".join(PARTS.values()).replace("int = 1", "object = object"), "JSON"),
        ("\n".join((*PARTS.values(), "def confirm_win(tables, second, failed): ...")), "remeasure"),
        ("VERSION = = 1", "not Python"),
        ("VERSION = 1\nraise OSError('no device')", r"OSError: no device \(line 2\)"),
        ("import no_such_library", "ModuleNotFoundError: No module named 'no_such_library'"),
    ],
)
def test_a_file_that_breaks_the_contract_is_refused_by_name(
    own: Path, text: str, fault: str
) -> None:
    (own / "mine.py").write_text(text)
    with pytest.raises(FlywheelError, match=fault) as error:
        contract.load("mine")
    assert "mine.py" in error.value.message
    with pytest.raises(UnknownName, match="mine"):
        contract.load("mint")


def test_an_evaluator_is_listed_and_its_options_are_those_of_the_commands(
    line_length: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluators("list") == 0
    assert "Reject kernels with long lines." in capsys.readouterr().out
    for verb in ("run", "check"):
        for name in (["--evaluator", "line-length"], ["--evaluator=line_length"]):
            assert evaluators(verb, *name, "--help") == 0
            shown = capsys.readouterr().out
            assert "--longest" in shown
            assert "Most characters in a line." in shown
            assert "--calls" not in shown
        assert evaluators(verb, "--help") == 0
        shown = capsys.readouterr().out
        assert "--calls" in shown
        assert "--longest" not in shown
    assert evaluators("run", "--longest", "80") == 2
    assert evaluators("run", "--evaluator", "line-length", "--calls", "3") == 2
    line_length.write_text(documented_example().replace("longest", "limit"))
    assert evaluators("run", "--evaluator", "line-length") == 1
    assert "Rename the field" in capsys.readouterr().err


@pytest.fixture
def busy_line_length(line_length: Path) -> str:
    """Return the text of that evaluator, whose verdicts may say that the host was busy."""
    text = (
        documented_example()
        .replace("    longest: int", "    busy: bool = False\n    longest: int")
        .replace('"reason"', '"flags": ["contended"] if config.busy else [], "reason"')
    )
    line_length.write_text(text)
    return text


@pytest.mark.slow
def test_a_run_stores_rows_that_are_pending_again_at_a_new_version(
    busy_line_length: str,
    line_length: Path,
    lake_with_kernels: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = ["--evaluator", "line-length", "--on", "cpu", "--lake", lake_with_kernels]
    assert evaluators("run", *options, "--longest", "200", "--busy") == 0
    said = capsys.readouterr()
    assert said.out.startswith("evaluations +2, timings +0 → snapshot ")
    assert "2 kernels ran while this host did other work" in said.err
    first = [
        {"length": len(code), "evaluator": "line-length", "evaluator_version": 1, "status": status}
        for code, status in ((SHORT, "correct"), (LONG, "correct"))
    ]
    assert verdicts(lake_with_kernels) == first
    with store.open(lake_with_kernels) as lake:
        [run] = lake.sql("SELECT name, config FROM runs WHERE kind = 'evaluation'").rows()
    assert run["name"] == "line-length"
    assert '"longest": 200' in run["config"]
    assert count_pending(lake_with_kernels) == {False: 0, True: 2}

    line_length.write_text(busy_line_length.replace("VERSION = 1", "VERSION = 2"))
    assert count_pending(lake_with_kernels) == {False: 2, True: 2}


@pytest.mark.slow
def test_a_run_judges_again_at_a_new_version(
    busy_line_length: str, line_length: Path, lake_with_kernels: str
) -> None:
    options = ["--evaluator", "line-length", "--on", "cpu", "--lake", lake_with_kernels]
    assert evaluators("run", *options, "--longest", "200") == 0
    line_length.write_text(busy_line_length.replace("VERSION = 1", "VERSION = 2"))
    assert evaluators("run", *options) == 0
    found = [(row["evaluator_version"], row["status"]) for row in verdicts(lake_with_kernels)]
    assert found == [(1, "correct"), (1, "correct"), (2, "correct"), (2, "incorrect")]


@pytest.mark.slow
def test_a_run_judges_again_what_was_contended(
    busy_line_length: str, lake_with_kernels: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--evaluator", "line-length", "--on", "cpu", "--lake", lake_with_kernels]
    options += ["--longest", "200"]
    assert evaluators("run", *options, "--busy") == 0
    capsys.readouterr()
    assert evaluators("run", *options, "--contended", "--limit", "1") == 0
    assert capsys.readouterr().out.startswith("evaluations +1, ")
    assert len(verdicts(lake_with_kernels)) == 3
    assert count_pending(lake_with_kernels) == {False: 0, True: 1}


def count_pending(url: str) -> dict[bool, int]:
    """Return how many kernels are pending, without and with those that were contended."""
    with store.open(url) as lake:
        devices = lake.sql("SELECT device_id, name, kind FROM devices").rows()
        module = contract.load("line-length")
        return {
            contended: find_pending(lake, module, devices, Selection(contended=contended)).num_rows
            for contended in (False, True)
        }


@pytest.mark.slow
def test_check_judges_a_file_with_the_evaluator(
    line_length: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "task.py").write_text(b.task()["code"])
    (tmp_path / "long.py").write_text(LONG)
    options = ["--evaluator", "line-length", "--task", "task.py", "--on", "cpu"]
    # Longer than the default allows, so that the option has reached the evaluator.
    assert evaluators("check", "long.py", *options, "--longest", "200") == 0
    [line] = capsys.readouterr().out.splitlines()
    assert line.startswith("long.py on ")
    assert line.endswith(": correct")
