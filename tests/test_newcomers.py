"""What newcomers type by mistake: each error or note names a next step, and no traceback."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path

import commands
import pytest
from new_lakes import copy_starter_lake

import store
from store import faults
from store.commandline import interrupts
from store.errors import FlywheelError

STARTER = "`store import starter`"
KERNEL = "class ModelNew: ...\n"
MISTAKES: list[tuple[str, str, int, str]] = [
    # No lake, or not there.
    ("none", "store query 'FROM leaderboard'", 1, STARTER),
    ("none", "store show diag_matmul", 1, STARTER),
    ("none", "evaluators check k.py --task diag_matmul", 1, STARTER),
    ("none", "evaluators run", 1, STARTER),
    ("none", "evaluators add k.py --task diag_matmul", 1, STARTER),
    ("none", "pipelines run contrastive-batch", 1, STARTER),
    ("none", "store best", 1, STARTER),
    ("none", "kf", 1, "`kf import starter`"),
    ("none", "kf check k.py --task diag_matmul", 1, "`kf import starter`"),
    ("empty", "kf judge", 0, "`kf import starter`"),
    ("starter", "store log --lake .", 1, "add --lake {folder}/lake"),
    ("starter", "store log --lake k.py", 1, "add --lake {folder}/lake"),
    ("none", "trainers run sft", 1, "--preset tiny"),
    # A lake without kernels.
    ("empty", "store query 'FROM best_kernels'", 0, STARTER),
    ("empty", "store show diag_matmul", 1, STARTER),
    ("empty", "store best", 1, STARTER),
    ("empty", "evaluators run", 0, STARTER),
    ("empty", "evaluators check k.py --task diag_matmul", 1, STARTER),
    ("empty", "pipelines run contrastive-batch", 1, STARTER),
    # Options that a command does not take, or lacks.
    ("starter", "evaluators check k.py", 2, 'store query "SELECT task FROM task_names"'),
    ("starter", "evaluators add k.py", 2, 'store query "SELECT task FROM task_names"'),
    ("starter", "evaluators check k.py --task diag_matmul --device cpu", 2, "mean --on?"),
    ("starter", "store best --on H200", 2, "mean --device?"),
    ("starter", "store import starter --format json", 2, "store query --format json"),
    ("starter", "evaluators run --format json", 2, "store query --format json"),
    ("starter", "store tag add v1 --format json", 2, "store query --format json"),
    ("starter", "evaluators run --on H200", 1, "cpu"),
    ("starter", "store best --device A100", 1, "Kernels rank on H200"),
    ("starter", "pipelines run contrastive-batch --device A100", 1, "on H200"),
    ("starter", "store query", 1, "Write one SELECT"),
    # A file or a folder in the wrong place.
    ("starter", "evaluators run k.py", 2, "`evaluators check k.py --task TASK`"),
    ("starter", "evaluators k.py", 2, "`evaluators check k.py --task TASK`"),
    ("starter", "kf k.py", 2, "`kf check k.py --task TASK`"),
    ("starter", "kf check k.py", 2, 'kf query "SELECT task FROM task_names"'),
    ("starter", "evaluators check nothing.py --task diag_matmul", 1, "ends in .py"),
    ("starter", "evaluators check folder --task diag_matmul", 1, "ends in .py"),
    ("starter", "evaluators check any.csv --task diag_matmul", 1, "store import detect any.csv"),
    ("starter", "evaluators check k.py --task folder", 1, "KernelBench"),
    ("starter", "evaluators check k.py --task nothing", 1, "diag_matmul"),
    ("starter", "store import any.csv", 2, "`store import detect any.csv`"),
    ("starter", "store import kernels k.py", 1, "`evaluators add FILE --task TASK`"),
    ("starter", "store import kernels folder", 1, "tasks/NAME.py"),
    ("starter", "store import detect any.csv", 1, "`store import rows FILE --map"),
    ("starter", "store import detect folder", 1, "`store import rows FILE --map"),
    ("starter", "store import rows any.csv", 1, "--map task=COLUMN --map code=COLUMN"),
    ("starter", "store import rows folder", 1, "ends in .jsonl"),
    ("starter", "store query folder", 1, "--file"),
    ("starter", "store query --file folder", 1, "Name a file"),
    ("starter", "store query \"FROM 'any.csv'\"", 1, "`store import rows FILE`"),
    # Names that are nearly right.
    ("starter", "kf bst", 2, 'mean "best"?'),
    ("starter", "store bets", 2, 'mean "best"?'),
    ("starter", "trainers run contrastiv", 2, 'mean "contrastive"?'),
    ("starter", "trainers run contrastive --preset small", 1, "tiny"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders with files, and a lake in two of them."""
    folders = {
        name: tmp_path_factory.mktemp(name) / "work" for name in ("none", "empty", "starter")
    }
    for folder in folders.values():
        (folder / "folder").mkdir(parents=True)
        (folder / "k.py").write_text(KERNEL)
        (folder / "any.csv").write_text("a,b\n1,2\n")
    store.writer(str(folders["empty"] / "lake"), author="tests").close()
    copy_starter_lake(folders["starter"] / "lake")
    return folders


@pytest.mark.repeats(run=8)
@pytest.mark.parametrize(("lake", "line", "code", "step"), MISTAKES)
def test_a_mistake_is_answered_with_a_next_step(
    places: dict[str, Path], lake: str, line: str, code: int, step: str
) -> None:
    folder = places[lake]
    env = {name: value for name, value in os.environ.items() if name != "FLYWHEEL_LAKE"}
    done = commands.run(shlex.split(line), cwd=folder, env=env)
    assert done.returncode == code, done.stderr
    assert step.format(folder=folder) in done.stderr
    assert "Traceback" not in done.stderr
    assert "This is a bug" not in done.stderr


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("device", ["h200", "NVIDIA H200"])
def test_a_device_model_is_found_in_any_case_and_with_more_words(
    places: dict[str, Path], device: str
) -> None:
    for words in (
        ["store", "best", "--device", device],
        ["pipelines", "run", "contrastive-batch", "--dry-run", "--device", device],
    ):
        done = commands.run(words, cwd=places["starter"])
        assert done.returncode == 0, done.stderr
        assert "H200" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "extra"),
    [("starlette", "explore"), ("mcp", "mcp"), ("psycopg", "server"), ("trl", "train")],
)
def test_one_text_says_what_to_install(
    name: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults.util, "find_spec", lambda _: None)
    raised = faults.explain(ModuleNotFoundError(f"No module named {name!r}", name=name))
    assert raised is not None
    wheel = f"kernel_flywheel-{store.__version__}-py3-none-any.whl[{extra}]"
    assert raised.message == f"the package {name} is not installed"
    assert raised.hint is not None
    assert f"pip install '.[{extra}]'" in raised.hint
    assert re.search(re.escape(wheel).replace(re.escape(store.__version__), ".+"), raised.hint)
    with pytest.raises(FlywheelError) as required:
        faults.require_packages(name)
    assert (required.value.message, required.value.hint) == (raised.message, raised.hint)


@pytest.mark.slow
def test_a_server_on_stdio_says_on_a_terminal_what_it_waits_for(places: dict[str, Path]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "store", "mcp"],
        cwd=places["starter"],
        stdin=theirs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as server:
        assert server.stderr is not None
        line = server.stderr.readline().decode()
        server.kill()
    os.close(ours)
    os.close(theirs)
    assert "waits for an MCP client" in line
    assert "--port" in line


def test_another_system_is_told_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SystemExit) as left:
        interrupts.start("store.cli.app")
    assert str(left.value) == f"error: {interrupts.LINUX_ONLY}"
