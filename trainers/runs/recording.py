"""Records a training run in the lake: its row at the start, metrics, checkpoints."""

from __future__ import annotations

import contextlib
import json
import math
import platform
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import store
from store import read_sql
from store.commandline import interrupts
from store.commandline.outputs import rename_over
from store.errors import FlywheelError
from trainers.models import loading
from trainers.models.loading import Identity
from trainers.runs import processes
from trainers.runs.job import Job

if TYPE_CHECKING:
    from transformers import TrainerCallback

    from store.writing.writer import Writer


Stage = Literal["base", "sft", "self-supervised", "contrastive"]

RUN_FILE = "run.json"
EVENTS = "tensorboard"
FINAL = "final"
_FLUSH_S = 15.0
_PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "duckdb")


class Run:
    """One run of a trainer. Rank 0 appends its rows; on other ranks every method does nothing.

    Create one with `begin_run`, call `start` once its dataset is known, and use it as a context
    manager: however it ends, it appends the metrics so far.
    """

    def __init__(self, job: Job, state: dict[str, Any], resumed: bool) -> None:
        self.job = job
        self.state = state
        """Content of run.json: run_id, lake_id, snapshot_id, config, resolved, started_at."""
        self.resumed = resumed
        self._writer: Writer | None = None
        self._stack = ExitStack()
        """The writer, the record of the run, and the last metrics."""
        self._record: store.RunRecord | None = None
        self._known: set[tuple[str, int]] = set()
        self._waiting: list[dict[str, Any]] = []
        self._flushed = time.monotonic()
        self.run_id, self.lake_id = str(state["run_id"]), str(state["lake_id"])
        self.pinned_snapshot = int(state["snapshot_id"])
        """Snapshot that the run reads, the same after an interruption."""
        self.snapshot = self.pinned_snapshot
        """The pinned snapshot; after an append, the snapshot of the last one."""

    @property
    def resolved(self) -> dict[str, Any]:
        """Return the argument of `start`; empty before that."""
        return dict(self.state.get("resolved", {}))

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Append pending metrics and how the run ended, and close the lake.

        A run that was refused before its start leaves an empty folder, which the next one can use.
        """
        with interrupts.wait_for("the commit of the last metrics"):
            self._stack.__exit__(kind, error, trace)
        if kind is not None and processes.is_main() and not (self.job.out / RUN_FILE).exists():
            for name in ("model", "cache"):
                shutil.rmtree(self.job.out / name, ignore_errors=True)
        self._writer = None
        if self._record is not None:
            self.snapshot = self._record.snapshot

    def start(self, resolved: Mapping[str, Any]) -> None:
        """Append the row of the run, with its configuration.

        The resolved options are dataset_id, parent policy, folders, TRL's settings.
        """
        self.state["resolved"] = self.resolved | dict(resolved)
        if not processes.is_main():
            return
        if not self.resumed:
            self.state |= {"versions": read_versions(), "processes": processes.count_processes()}
        write_state(self.job.out / RUN_FILE, self.state)
        interrupts.note(
            "committed rows and complete checkpoints are kept. To resume from the last checkpoint, "
            f"run the command again with --out {self.job.out} --resume."
        )
        self._writer = self._stack.enter_context(
            store.writer(self.job.lake_url, author=f"trainers {self.job.name}")
        )
        names = ("config", "resolved", "versions", "processes")
        row = store.make_run(
            kind="training",
            name=self.job.name,
            config={name: self.state.get(name) for name in names},
            run_id=self.run_id,
            lake_id=self.lake_id,
            snapshot_id=self.pinned_snapshot,
            started_at=datetime.fromisoformat(self.state["started_at"]),
        )
        self._record = self._stack.enter_context(
            store.record_run(self._writer, row, f"{self.job.name} begins", resumed=self.resumed)
        )
        self._stack.callback(self.flush)
        self.snapshot = self._record.snapshot
        if self.resumed:
            with self._writer.reader() as lake:
                known = lake.run(read_sql(__file__, "known_metrics"), [self.run_id])
                self._known = {(row["name"], row["step"]) for row in known.rows()}

    def keep(self, state: Mapping[str, Any]) -> None:
        """Record the progress of the run, beside its configuration, for a later resume."""
        self.state |= state
        if processes.is_main():
            write_state(self.job.out / RUN_FILE, self.state)

    def append(self, tables: Mapping[str, Any], message: str, *, wait: bool = True) -> int:
        """Append one bundle of rows and return the snapshot that contains it (`Writer.append`)."""
        if self._writer is not None:
            self.snapshot = self._writer.append(tables, message, wait=wait)
        return self.snapshot

    def reader(self, at: str | int | None = None) -> store.Lake:
        """Open the lake at its newest snapshot, or another."""
        return store.open(self.job.lake_url, at)

    def add_metrics(self, step: int, values: Mapping[str, Any]) -> None:
        """Take the metrics of one step, except those that the lake already has.

        Only finite numbers are stored, every 15 s and when the run closes.
        """
        if self._writer is None:
            return
        now = datetime.now(UTC)
        for name, value in values.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or (name, step) in self._known:
                continue
            if not math.isfinite(value):
                self.job.say(f"step {step}: {name} is {value}, which is not stored")
                continue
            self._known.add((name, step))
            self._waiting.append(
                {
                    "run_id": self.run_id,
                    "name": name,
                    "step": step,
                    "value": float(value),
                    "created_at": now,
                }
            )
        if time.monotonic() - self._flushed > _FLUSH_S:
            self.flush()

    def flush(self) -> int:
        """Append the pending metrics; return the newest snapshot that this run knows."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.append({"metrics": waiting}, f"{self.job.name}: {len(waiting)} metrics")
        self._flushed = time.monotonic()
        return self.snapshot

    def add_policy(
        self,
        folder: Path,
        *,
        stage: Stage,
        parent: str | None = None,
        round: int | None = None,
        step: int | None = None,
        dataset_id: str | None = None,
        name: str | None = None,
        identity: Identity | None = None,
    ) -> str:
        """Append the row of a model folder and return its policy_id.

        A model that the lake knows keeps its row, because the same files are one policy.
        `identity` spares reading its weights.
        """
        if self._writer is None:
            return ""
        policy_id, weights = identity or loading.identify_model(folder)
        # The path of a folder relative to that of the run, such as round-1/final.
        inside, out = folder.resolve(), self.job.out.resolve()
        place = inside.relative_to(out) if inside.is_relative_to(out) else inside.name
        settings = {
            "folder": str(inside),
            "step": step,
            "config": self.state["config"],
            "resolved": self.resolved,
        }
        row = {
            "policy_id": policy_id,
            "name": name or f"{self.job.name} {self.run_id[-6:]} {place}",
            "kind": "model",
            "stage": stage,
            "round": round,
            "parent_policy_id": parent if parent != policy_id else None,
            "model": f"{folder.parent.name}/{folder.name}",
            "dataset_id": dataset_id,
            "run_id": self.run_id if stage != "base" else None,
            "weights_sha256": weights,
            "config": json.dumps(settings, sort_keys=True),
            "created_at": datetime.now(UTC),
        }
        self.append({"policies": [row]}, f"{self.job.name}: policy {policy_id[:12]}")
        return policy_id

    def add_base(self, folder: Path, model: str, identity: Identity | None = None) -> str:
        """Return the policy of the model that training starts from; a new one is a base."""
        name = model.rstrip("/").split("/")[-1]
        return self.add_policy(folder, stage="base", round=0, name=name, identity=identity)


def read_versions() -> dict[str, str]:
    """Return the versions of the software that a training depends on."""
    versions = {"python": platform.python_version(), "kernel-flywheel": store.__version__}
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def begin_run(job: Job, config: Any) -> Run:
    """Create a run, or resume the one in the folder; every rank gets the same.

    Raises FlywheelError: the folder holds another run or other files; there is nothing to resume;
    or the options are not those of the run that is resumed.
    """
    state, resumed = processes.run_on_main(lambda: open_state(job, config))
    return Run(job, state, resumed)


def open_state(job: Job, config: Any) -> tuple[dict[str, Any], bool]:
    """Return the state of a new run, or of the one in the folder, and whether it is resumed."""
    file = job.out / RUN_FILE
    options = json.loads(json.dumps(asdict(config)))
    with store.open(job.lake_url, job.at) as lake:
        lake_id, snapshot = lake.lake_id, lake.snapshot
    if job.resume:
        if not file.exists():
            raise FlywheelError(
                f"{job.out} holds no run to resume", "Name the folder of one with --out."
            )
        try:
            state: dict[str, Any] = json.loads(file.read_bytes())
        except ValueError as error:
            raise FlywheelError(
                f"{file} cannot be read: {error}",
                "Copy it back, or begin another run: --model takes a checkpoint of this one.",
            ) from error
        if state["name"] != job.name:
            raise FlywheelError(f"{job.out} holds a run of {state['name']}, not of {job.name}")
        if state["lake_id"] != lake_id:
            raise FlywheelError(
                f"{job.out} holds a run over lake {state['lake_id']}, not {lake_id}",
                "Name that lake with --lake.",
            )
        other = sorted(
            name
            for name in options | state["config"]
            if options.get(name) != state["config"].get(name)
        )
        if other:
            was = ", ".join(f"{name} was {json.dumps(state['config'].get(name))}" for name in other)
            raise FlywheelError(
                f"the options are not those that the run began with: {was}",
                "Give the same, or begin another run: --model takes a checkpoint of this one.",
            )
        return state, True
    if job.out.exists() and (job.out.is_file() or any(job.out.iterdir())):
        hint = "--resume goes on with it; or name another folder with --out."
        what = "a run" if file.exists() else "something else"
        raise FlywheelError(
            f"{job.out} holds {what} already", hint if file.exists() else "Name another with --out."
        )
    job.out.mkdir(parents=True, exist_ok=True)
    return {
        "run_id": store.ids.uuid7(),
        "name": job.name,
        "lake_id": lake_id,
        "snapshot_id": snapshot,
        "config": options,
        "started_at": datetime.now(UTC).isoformat(),
    }, False


def write_state(file: Path, state: dict[str, Any]) -> None:
    """Write a file completely or not at all."""
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n", "utf-8")
    partial.replace(file)


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return the complete checkpoints of a transformers Trainer with their steps, oldest first.

    A folder without a whole trainer_state.json was being written when its process ended, since that
    file is written last.
    """
    found: list[tuple[int, Path]] = []
    for one in folder.glob("checkpoint-*"):
        step = one.name.partition("-")[2]
        with contextlib.suppress(FileNotFoundError, ValueError):
            json.loads((one / "trainer_state.json").read_bytes())
            found.append((int(step), one))
    return sorted(found)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one training."""

    run: Run
    out: Path
    """Their folder; the trained model is in `final` there."""
    stage: Stage
    parent: str
    """Policy that the training starts from."""
    dataset_id: str
    round: int | None = None
    """Round number of the policies; None numbers them by step."""
    offset: int = 0
    """Optimisation steps that the run has made before."""

    @property
    def final(self) -> Path:
        """Return the folder of the trained model."""
        return self.out / FINAL

    def resume(self) -> tuple[int, str | None]:
        """Return the step and folder of the last complete checkpoint, and append all as policies.

        Without a checkpoint, these are 0 and None.
        """
        done = list_checkpoints(self.out)
        for step, folder in done if processes.is_main() else []:
            self.record(folder, step)
        return (done[-1][0], str(done[-1][1])) if done else (0, None)

    def write_final(self, trainer: Any) -> None:
        """Write the trained model, whose folder appears when it is complete.

        Every rank calls this.
        """
        partial = self.final.with_suffix(".partial")
        processes.run_on_main(lambda: shutil.rmtree(partial, ignore_errors=True))
        trainer.save_model(str(partial))
        trainer.accelerator.wait_for_everyone()
        processes.run_on_main(lambda: rename_over(partial, self.final))
        processes.run_on_main(lambda: shutil.rmtree(partial, ignore_errors=True))  # what was there

    def record_final(self, steps: int) -> str:
        """Append the trained model as a policy and return its policy_id. Every rank calls this."""
        return processes.run_on_main(lambda: self.record(self.final, steps))

    def make_callback(self) -> TrainerCallback:
        """Return a callback that stores metrics, appends every checkpoint, and reports progress."""
        from transformers import TrainerCallback

        run, checkpoints = self.run, self

        class Records(TrainerCallback):
            def on_log(  # pyright: ignore[reportIncompatibleMethodOverride]
                self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
            ) -> None:
                run.add_metrics(checkpoints.offset + int(state.global_step), logs or {})
                if control.should_save:
                    # A run that resumes from this checkpoint does not repeat its steps.
                    run.flush()

            def on_save(  # pyright: ignore[reportIncompatibleMethodOverride]
                self, args: Any, state: Any, control: Any, **kwargs: Any
            ) -> None:
                if processes.is_main():
                    step = int(state.global_step)
                    checkpoints.record(checkpoints.out / f"checkpoint-{step}", step)

            def on_step_end(  # pyright: ignore[reportIncompatibleMethodOverride]
                self, args: Any, state: Any, control: Any, **kwargs: Any
            ) -> None:
                run.job.progress(int(state.global_step), int(state.max_steps), "steps")

        return Records()

    def record(self, folder: Path, step: int) -> str:
        """Append the policy of a folder with weights; sharded ones become whole only at the end."""
        if not any(loading.list_weight_files(folder)):
            return ""
        return self.run.add_policy(
            folder,
            stage=self.stage,
            parent=self.parent,
            round=self.round if self.round is not None else self.offset + step,
            step=self.offset + step,
            dataset_id=self.dataset_id,
        )
