"""Runs the steps of the experiment: one command each, timed, logged and done once."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import store
from lab.three_stages.plan import Plan, Step
from lab.three_stages.publication import mask_names
from lab.three_stages.sizes import Sizes

ROOT = Path(store.__file__).parent.parent
QUERIES = ROOT / "docs" / "runs"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_GRACE_S = 60
"""Seconds that a command has after SIGINT to store its results."""


class Study(Plan):
    """One folder: its steps, its markers of what is done, its results."""

    def __init__(self, out: Path, sizes: Sizes, seed: int, budget_s: float, total_s: float) -> None:
        super().__init__(out, sizes, seed)
        self.budget_s = budget_s
        self.ends = time.monotonic() + total_s
        self.seconds: dict[str, float] = {}

    def do_step(self, step: Step) -> bool:
        """Do a step if it is not done; return whether to continue with the next.

        Raises:
            SystemExit: the command has failed.
        """
        marker = self.out / "done" / f"{step.name}.json"
        told: dict[str, Any] = json.loads(marker.read_text("utf-8")) if marker.exists() else {}
        if told and (told["collapsed"] or step.holds()):
            self.seconds[step.name] = told["seconds"]
            say(step, f"{'done before':>12}")
            return True
        limit = min(self.budget_s, self.ends - time.monotonic())
        if limit <= 0:
            say(step, "no time left")
            return False
        words = step.words()
        begun = time.monotonic()
        code, in_time = self.run_command(step, words, limit)
        took = time.monotonic() - begun
        log = self._read_log(step)
        collapsed = code == 1 and step.name == "self-supervised" and "has collapsed" in log
        # A step that the total time cut off continues in the next run; its own budget is final.
        over = not in_time and limit < self.budget_s
        holds = collapsed or (not over and (step.partial or in_time) and step.holds())
        if in_time and not collapsed and (code or not holds):
            sys.exit(f"{step.name} ended with {code}: {' '.join(words)}\n{log[-3000:]}")
        note = " the policy has collapsed" * collapsed + " stopped by its budget" * (not in_time)
        say(step, f"{took:10.1f} s{note}")
        if holds:
            marker.parent.mkdir(parents=True, exist_ok=True)
            told = {"seconds": took, "words": words, "in_time": in_time, "collapsed": collapsed}
            marker.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
            self.seconds[step.name] = took
        return holds

    def write_result(self) -> None:
        """Write OUT/result anew: answers, reports and tables."""
        folder = self.out / "result"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("stage_table", "loop_proof", "run_costs", "run_curves"):
            self._write_answer(name, ["FROM " + name], folder)
        for file in sorted(QUERIES.glob("*.sql")):
            self._write_answer(file.stem, ["--file", str(file)], folder)
        for name in self.find_models():
            file = self.out / "runs" / name / "run.json"
            if file.exists():
                run_id = json.loads(file.read_text("utf-8"))["run_id"]
                out = str(folder / "reports" / name)
                self._require("report", ["store", "report", "--run", run_id, "--out", out])
        kernel = self._find_shown_kernel()
        if kernel is not None:
            lineage = self._require("lineage", ["store", "show", kernel, "--lineage"])
            (folder / "lineage.txt").write_text(lineage, "utf-8")
        self.export_tables(folder)
        told = {
            "seconds": self.seconds,
            "models": {k: str(v) for k, v in self.find_models().items()},
        }
        (self.out / "seconds.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")

    def export_tables(self, folder: Path) -> None:
        """Write all tables to a folder, and mask names of this machine in all of its files."""
        shutil.rmtree(folder / "tables", ignore_errors=True)
        self._require("export", ["store", "export", "parquet", str(folder / "tables")])
        names, model = {str(self.out): "OUT"}, Path(self.sizes.model)
        mask_names(folder, names | ({f"{model.parent}/": ""} if model.is_absolute() else {}))

    def _find_shown_kernel(self) -> str | None:
        """Return a kernel that was written to a prompt with exemplars."""
        with store.open(str(self.lake)) as lake:
            rows = lake.sql(
                "SELECT kernel_id FROM generations WHERE kernel_id IS NOT NULL "
                "AND len(exemplar_kernel_ids) > 0 ORDER BY created_at DESC, kernel_id LIMIT 1"
            ).rows()
        return rows[0]["kernel_id"] if rows else None

    def _write_answer(self, name: str, words: list[str], folder: Path) -> None:
        file = str(folder / f"{name}.csv")
        self._require(name, ["store", "query", "--format", "csv", "--out", file, *words])

    def _require(self, name: str, words: list[str]) -> str:
        line = [sys.executable, "-m", *words, "--lake", str(self.lake)]
        done = subprocess.run(
            line, cwd=self.out, env=_make_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}: {' '.join(words)}\n{done.stderr}")
        return done.stdout

    def run_command(self, step: Step, words: list[str], limit: float) -> tuple[int, bool]:
        """Run a command; return its exit code, and whether it ended in time."""
        logs = self.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        line = [sys.executable, "-m", *words, "--lake", str(self.lake)]
        environment, cores = _make_environment(), sorted(os.sched_getaffinity(0))
        if step.place is not None:
            environment |= {"CUDA_VISIBLE_DEVICES": self._list_visible_devices()[step.place]}
            cores = cores[step.place :: len(self.devices)]
        if step.part is not None:
            cores = cores[step.part[0] :: step.part[1]]

        def prepare_process() -> None:
            _die_with_parent()
            # A shell that starts this program in the background makes it ignore the signal.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.sched_setaffinity(0, cores)

        with (logs / f"{step.name}.txt").open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(words)}\n")
            log.flush()
            running = subprocess.Popen(
                line,
                cwd=self.out,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=prepare_process,
            )
            try:
                return running.wait(limit), True
            except subprocess.TimeoutExpired:
                running.send_signal(signal.SIGINT)
            try:
                return running.wait(_GRACE_S), False
            except subprocess.TimeoutExpired:
                running.kill()
                return running.wait(), False

    def _list_visible_devices(self) -> list[str]:
        """Return what CUDA_VISIBLE_DEVICES calls each of the devices."""
        numbers = [one.partition(":")[2] for one in self.devices]
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        return [seen.split(",")[int(number)] for number in numbers] if seen else numbers

    def _read_log(self, step: Step) -> str:
        file = self.out / "logs" / f"{step.name}.txt"
        return file.read_text("utf-8", errors="replace").rpartition("\n$ ")[2]


@contextlib.contextmanager
def lock_folder(out: Path) -> Generator[None]:
    """Hold the folder: a second driver in it is refused."""
    import fcntl

    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"another process is at work in {out}")
        yield


def say(step: Step, text: str) -> None:
    """Print a line about a step in one write, because other steps print at the same time."""
    sys.stdout.write(f"{step.name:24} {text}\n")
    sys.stdout.flush()


def _die_with_parent() -> None:
    """Let the kernel end a command whose driver is gone, so that two never train in one folder."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _make_environment() -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH")
    path = str(ROOT) if inherited is None else f"{ROOT}{os.pathsep}{inherited}"
    # The cache of keys and values grows with every token, which fragments the memory of a GPU.
    memory = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    return memory | os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
