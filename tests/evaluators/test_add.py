"""`evaluators add` stores one kernel of a task of the lake, and judges it once."""

from __future__ import annotations

from pathlib import Path

import commands
import pytest
from new_lakes import copy_starter_lake

import store

KERNEL = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return a.unsqueeze(1) * b
"""
BRIEF = (
    *("--on", "cpu", "--calls", "2", "--no-robustness", "--no-diagnosis"),
    *("--draw-shapes", "0", "--baselines", "eager", "--blocks", "20"),
)


@pytest.mark.slow
def test_a_file_is_stored_as_a_kernel_and_judged_once(tmp_path: Path) -> None:
    copy_starter_lake(tmp_path / "lake")
    (tmp_path / "mine.py").write_text(KERNEL)
    words = ["evaluators", "add", "mine.py", "--task", "diag_matmul", "--author", "alice", *BRIEF]
    added = commands.run(words, cwd=tmp_path)
    assert added.returncode == 0, added.stderr
    assert added.stdout.startswith("mine.py on ")
    assert "evaluations +1" in added.stdout
    again = commands.run(words, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("0 pending on ")
    with store.open(str(tmp_path / "lake")) as lake:
        found = lake.sql(
            "SELECT task, code, kernels.path, status FROM generations "
            "JOIN kernels USING (kernel_id) JOIN task_names USING (task_id) "
            "JOIN evaluations USING (kernel_id) WHERE policy_id = 'alice'"
        ).rows()
    assert [tuple(row.values()) for row in found] == [
        ("diag_matmul", KERNEL, "kernel.py", "correct")
    ]


def test_a_file_that_is_no_text_and_a_task_that_is_no_row_are_refused(tmp_path: Path) -> None:
    copy_starter_lake(tmp_path / "lake")
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe")
    (tmp_path / "mine.py").write_text(KERNEL)
    for words, said in (
        (["bytes.py", "--task", "diag_matmul"], "bytes.py is not a text in UTF-8"),
        (["mine.py", "--task", "mine.py"], 'no task "mine.py"'),
    ):
        done = commands.run(["evaluators", "add", *words, "--on", "cpu"], cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert said in done.stderr
