"""Submissions to GPU MODE's leaderboards (GPUMODE/kernelbot-data), from its Parquet exports.

Reads the columns of kernelbot's export as of June 2026: problem_name, user_id, code_id,
submission_time, status, score, passed, mode, runner and code, and leaves out user_name. One text
with several runs is one attempt; each run that states a result becomes a claim. A score is a time
in seconds: compute_score of gpu-mode/kernelbot at 4bdd839 divides the mean of a benchmark in
nanoseconds by 1e9, and a leaderboard with several benchmarks ranks by their mean or geometric mean.
Scores become claims in milliseconds. The problems are not in KernelBench's form, so attempts have a
problem and no task.

The license of the dataset changed on 2026-02-05 (MIT to CC-BY-4.0) and in June 2026 (to the June 9
Researcher Reciprocity License). Rows carry the newest one, unless --license names the one that your
copy came under. `store publish` refuses rows under the newest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import store
from store.foreign.text_files import Fields
from store.ids import content_id
from store.importers.reading import pieces, sources

NAME = "kernelbot"
RECIPROCITY = "LicenseRef-GPU-MODE-Researcher-Reciprocity-2026-06-09"
COLUMNS = pieces.name_columns(
    required="submission_id code",
    optional=(
        "leaderboard_id problem_name user_id code_id file_name submission_time status score "
        "passed mode runner"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    source_revision: str = "unknown"
    license: str | None = RECIPROCITY
    """License that your copy came under, such as MIT for a copy from before 2026-02-05."""


def recognize(path: Path) -> str | None:
    return sources.find_columns(path, "submission_id", "leaderboard_id", "runner", "code")


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the submissions of each file in bundles."""
    root, files = sources.find_parquet(path, "submissions.parquet … of kernelbot-data")
    files = [file for file in files if "code" in sources.column_names(file)]
    yield from pieces.Import(lake, NAME, config, source="GPUMODE/kernelbot-data").read(
        (pieces.open_parquet(file, root, COLUMNS) for file in files), lambda: _add
    )


def _add(rows: pieces.BundleRows, row: Fields) -> None:
    submission = row.require_whole("submission_id")
    code = row.code("code")
    if code is None:
        return
    problem, user = row.text("problem_name"), row.text("user_id")
    # A pseudonym: who submitted it must not be told from the id alone.
    policy = f"kernelbot/{content_id('kernelbot user', user)[:16]}" if user else "kernelbot/unknown"
    path = "kernel.cu" if (row.text("file_name") or "").endswith((".cu", ".cpp")) else "kernel.py"
    attempt = rows.add_attempt(
        [str(submission)],
        policy=policy,
        policy_kind="person",
        problem=problem,
        kernel_id=rows.add_code(code, path=path, entry_point="custom_kernel"),
        created_at=row.moment("submission_time"),
    )
    mode, runner = row.text("mode") or "unknown", row.text("runner")
    passed, score = row.flag("passed"), row.positive("score")
    quote = (
        f"submission {submission} to {problem or 'an unnamed problem'}, mode {mode}, "
        f"runner {runner or 'unknown'}, status {row.text('status') or 'unknown'}"
    )
    rows.add_claim(attempt, "correct", None if passed is None else float(passed), quote, gpu=runner)
    if score is not None and passed is not False:
        rows.add_claim(attempt, "latency_ms", score * 1_000, quote, gpu=runner)
