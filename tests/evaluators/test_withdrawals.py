"""Verdicts that a fault of their host decided are found, and withdrawn by rows that name them."""

from __future__ import annotations

from pathlib import Path

import builders as b
import commands
import pytest

import store
from evaluators import judge
from evaluators.audit import sweep
from evaluators.scheduling.contract import load_default
from evaluators.scheduling.run import Selection, find_pending

TASK = b.task()
SIZES = b.workload(TASK)
HOST = b.device("a host")
TEXTS = {
    "which": "CalledProcessError: Command '['which', 'c++']' returned non-zero exit status 1.",
    "shell": "RuntimeError: Error building extension 'k' … /bin/sh: 1: /nowhere/g++: not found",
    "headers": "RuntimeError: … fatal error: Python.h: No such file or directory",
    "disk": "OSError: [Errno 28] No space left on device",
    "killed": "c++: fatal error: Killed signal terminated program cc1plus",
    "cuda": "OSError: CUDA_HOME environment variable is not set.",
    "triton": "RuntimeError: Failed to find C compiler. Please specify via CC",
}
HONEST = {
    "syntax": "RuntimeError: … main.cpp:2:2: error: expected ';'",
    "printed": "RuntimeError: No space left on device",
}
"""Faults of kernels; one has the words in its code."""


@pytest.fixture
def lake_of_faults(writer: store.Writer, lake_url: str) -> str:
    """Return a lake with a verdict for each text, and with a good one."""
    kernels = {
        name: b.kernel(
            name,
            code=f"raise OSError({text!r})" if name == "printed" else f"# {name}",
            path=f"{name}.py",
        )
        for name, text in (TEXTS | HONEST | {"good": ""}).items()
    }
    rows = [
        b.evaluation(
            kernels[name], TASK, SIZES, HOST, "compile_error", evaluator="judge",
            version=judge.VERSION, reason="build_failed", message=text,
        )
        for name, text in (TEXTS | HONEST).items()
    ]  # fmt: skip
    author = b.policy()
    rows.append(
        b.evaluation(kernels["good"], TASK, SIZES, HOST, evaluator="judge", version=judge.VERSION)
    )
    writer.append(
        {
            "tasks": [TASK], "task_labels": [b.label(TASK)], "workloads": [SIZES],
            "devices": [HOST], "policies": [author], "kernels": list(kernels.values()),
            "generations": [b.generation(author, TASK, kernel) for kernel in kernels.values()],
            "evaluations": rows,
        },
        "verdicts",
    )  # fmt: skip
    return lake_url


def test_verdicts_of_unfit_hosts_are_withdrawn_and_their_kernels_are_pending(
    lake_of_faults: str, tmp_path: Path
) -> None:
    url = lake_of_faults

    def evaluators(*words: str) -> tuple[int, str]:
        done = commands.run(["evaluators", *words, "--lake", url], cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    with store.open(url) as lake:
        found = sweep.find_host_faults(lake).to_pylist()
        before = lake.sql("SELECT count(*) AS n FROM evaluations").rows()
        names = {row["kernel_id"]: row["path"] for row in lake.sql("FROM kernels").rows()}
        assert lake.sql("SELECT count(*) AS n FROM verdicts").rows() == [{"n": 10}]
    assert {names[row["kernel_id"]].removesuffix(".py") for row in found} == set(TEXTS)
    assert "7 verdicts show a fault of their host" in evaluators("findings")[1]
    code, said = evaluators("withdraw")
    assert (code, "Add --yes" in said, "No space left" in said) == (1, True, True)
    code, said = evaluators("withdraw", "--yes")
    assert (code, "withdrew 7 verdicts" in said) == (0, True)
    with store.open(url) as lake:
        assert sweep.find_host_faults(lake).num_rows == 0
        assert lake.sql("SELECT count(*) AS n FROM evaluations").rows() == [
            {"n": before[0]["n"] + 7}
        ]
        pending = find_pending(lake, load_default(), [HOST], Selection()).to_pylist()
        counted = lake.sql("FROM counted_evaluations WHERE status <> 'evaluator_error'").rows()
        verdicts = lake.sql("SELECT count(*) AS n FROM verdicts").rows()
    assert {row["path"].removesuffix(".py") for row in pending} == set(TEXTS)
    assert {names[row["kernel_id"]].removesuffix(".py") for row in counted} == {*HONEST, "good"}
    assert verdicts == [{"n": 3}]
    assert "no verdict shows a fault of its host" in evaluators("withdraw", "--yes")[1]
