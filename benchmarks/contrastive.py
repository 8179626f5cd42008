"""A contrastive batch: the pipeline against the bare SQL that fetches its texts, and against JSONL.

python benchmarks/contrastive.py --lake DIR --prompts 1000 100000 --jsonl

Each side runs in a separate process, so its time includes the start-up and its memory is measured
separately. `pipeline` is `pipelines run contrastive-batch`: it renders prompts, checks them against
the rules, writes and records them. `bare SQL` is one hand-written DuckDB statement over the lake's
Parquet files that draws the same kernels and only fetches their texts. The program asserts that
both drew the same kernels. `pipeline, first` runs with an empty view cache (docs/benchmarks.md) and
fills it. `JSONL` does the job with `datasets` on the same history as JSON lines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from append import copy_lake
from queries import HAND, open_by_hand

import store

PIPELINE = [sys.executable, "-m", "pipelines", "run", "contrastive-batch"]
DRAW = {"seed": 0, "exemplars": 2, "bucket_width": 0.25, "temperature": 1.0}


def write_inlined(lake: str, folder: Path) -> None:
    """Write the few rows that the lake keeps in its catalog to Parquet, for the bare side."""
    with store.open(lake) as opened:
        for name in opened.catalog.tables:
            if any((opened.location.data / "main" / name).glob("*.parquet")):
                continue
            rows = opened.run(f"FROM {name}").arrow()
            if rows.num_rows:
                (folder / name).mkdir(parents=True)
                pq.write_table(rows, folder / name / "rows.parquet")


def fetch_texts(lake: str, kept: str, prompts: int, out: Path) -> None:
    """Fetch the texts of a batch by one statement over the Parquet files."""
    connection = duckdb.connect()
    for table in [*Path(lake, "data", "main").iterdir(), *Path(kept).iterdir()]:
        if any(table.glob("*.parquet")):
            files = f"read_parquet('{table}/*.parquet')"
            connection.execute(f"CREATE VIEW {table.name} AS FROM {files}")
    sql = (HAND / "contrastive.sql").read_text("utf-8")
    rows = connection.execute(sql, DRAW | {"limit": prompts}).to_arrow_table()
    kernels = pa.array([[one["kernel_id"] for one in row] for row in rows["exemplars"].to_pylist()])
    pq.write_table(rows.select(["task_id", "draw"]).append_column("kernel_ids", kernels), out)


def export(lake: str, folder: Path) -> None:
    """Write the history as JSON lines: a file of tasks and one of judged kernels with samples."""
    with store.open(lake) as opened:
        connection = open_by_hand(opened)
    connection.execute(
        f"""
        COPY (
            SELECT task_id, code, bool_and(split = 'train') AS train
            FROM tasks JOIN task_labels USING (task_id) JOIN splits USING (suite, family)
            GROUP BY ALL
        ) TO '{folder / "tasks.jsonl"}' (FORMAT json);
        COPY (
            SELECT
                e.evaluation_id, e.task_id, e.kernel_id, e.status, k.code,
                t.kernel_ms, t.baseline_ms, f.kernel_id IS NOT NULL AS quarantined
            FROM evaluations AS e
            JOIN kernels AS k USING (kernel_id)
            LEFT JOIN (
                SELECT
                    evaluation_id,
                    any_value(samples_ms) FILTER (WHERE arm = 'kernel') AS kernel_ms,
                    any_value(samples_ms) FILTER (WHERE arm = 'eager') AS baseline_ms
                FROM timings GROUP BY evaluation_id
            ) AS t USING (evaluation_id)
            LEFT JOIN (SELECT DISTINCT kernel_id FROM findings) AS f USING (kernel_id)
        ) TO '{folder / "history.jsonl"}' (FORMAT json)
        """
    )


def measure_command(command: list[str], folder: Path) -> tuple[float, float]:
    """Run a process; return its seconds and the most memory it held, in GB."""
    environment = os.environ | {"HF_HOME": str(folder / "hub"), "HF_DATASETS_OFFLINE": "1"}
    begun = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    said = process.stderr.read()
    # The usage of this one child, where getrusage would give the largest of all so far.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begun
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed\n{said.decode()[-2000:]}")
    return seconds, usage.ru_maxrss / 2**20


def assert_same(dataset: Path, drawn: Path) -> int:
    """Compare the kernels that both sides drew; return the number of prompts."""
    columns = ["task_id", "draw", "exemplar_kernel_ids"]
    made = pa.concat_tables(
        [pq.read_table(file, columns=columns) for file in sorted(dataset.rglob("*.parquet"))]
    ).to_pylist()
    bare_rows = pq.read_table(drawn).to_pylist()
    wanted = {(row["task_id"], row["draw"]): row["kernel_ids"] for row in bare_rows}
    for row in made:
        assert wanted[row["task_id"], row["draw"]] == row["exemplar_kernel_ids"], row
    return len(made)


def compare(lake: Path, prompts: int, rounds: int, folder: Path) -> float:
    """Time pipeline and bare SQL in turn; print a line for each; return the pipeline's seconds."""
    best = {"pipeline": float("inf"), "bare SQL": float("inf")}
    memory = dict.fromkeys(best, 0.0)
    made = 0
    first: tuple[float, float] | None = None
    if not (lake / "derived").exists():
        options = f"--lake {lake} --limit {prompts} --seed 0 --out {folder / 'first'}".split()
        first = measure_command([*PIPELINE, *options], folder)
    for round_ in range(rounds):
        dataset, drawn = folder / f"dataset{round_}", folder / f"drawn{round_}.parquet"
        given = [str(lake), str(folder / "inlined"), str(prompts), str(drawn)]
        options = f"--lake {lake} --limit {prompts} --seed 0 --out {dataset}".split()
        commands = {
            "bare SQL": [sys.executable, __file__, "bare", *given],
            "pipeline": [*PIPELINE, *options],
        }
        for side, command in commands.items():
            seconds, held = measure_command(command, folder)
            best[side] = min(best[side], seconds)
            memory[side] = max(memory[side], held)
        made = assert_same(dataset, drawn)
        shutil.rmtree(dataset)
    if first is not None:
        seconds, held = first
        print(
            f"| {prompts} | pipeline, first | {made} | {seconds:.1f} | {held:.2f} "
            f"| {seconds / best['bare SQL']:.2f} |"
        )
    for side in ("bare SQL", "pipeline"):
        ratio = best[side] / best["bare SQL"]
        print(
            f"| {prompts} | {side} | {made if side == 'pipeline' else prompts} | {best[side]:.1f} "
            f"| {memory[side]:.2f} | {ratio:.2f} |",
            flush=True,
        )
    return best["bare SQL"]


def main() -> None:
    """Run the comparison, or one of its processes."""
    if sys.argv[1:2] == ["bare"]:
        fetch_texts(sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True, help="lake made by generate.py")
    parser.add_argument("--prompts", type=int, nargs="+", default=[1000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jsonl", action="store_true", help="also run the job on JSON lines")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flywheel-batch-", dir=given.folder) as made:
        folder = Path(made)
        # Runs are recorded in the lake: a copy keeps the given one as it is.
        copy_lake(given.lake, folder / "lake")
        write_inlined(str(given.lake), folder / "inlined")
        if given.jsonl:
            export(str(given.lake), folder)
        print("| prompts | side | rows | s | GB | times bare SQL |")
        print("|---|---|---|---|---|---|")
        for prompts in given.prompts:
            bare_s = compare(folder / "lake", prompts, given.rounds, folder)
            if given.jsonl:
                script = Path(__file__).with_name("jsonl_job.py")
                command = [sys.executable, str(script), str(folder), str(prompts)]
                seconds, held = measure_command(command, folder)
                print(
                    f"| {prompts} | JSONL | {prompts} | {seconds:.1f} | {held:.2f} "
                    f"| {seconds / bare_s:.2f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
