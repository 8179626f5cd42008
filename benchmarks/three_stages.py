"""The three stages on generated tasks, from an empty folder to a table of held-out families.

python benchmarks/three_stages.py OUT [--preset cpu-small|h200] [--model FOLDER]

Base model, stage 1 (sft), stages 1 + 2 (self-supervised) and 1 + 2 + 3 (contrastive, in several
arms of equal budget, each from several seeds) answer the same prompts on families that no training
has seen. Another --seed is another run from the beginning, in a folder of its own. Every step is a
command of the four rooms in a process of its own; its words and output stand in OUT/logs.
With several devices the trainings of stage 3 run side by side, each with a GPU of its own. At the
end the models answer side by side on any number of GPUs, since sampling a small one waits for the
processor; their kernels are judged after that.
A step that is done is not done again: what ends this program, SIGKILL included, ends its commands,
and the same line goes on. A command that is past its --budget-s is interrupted, and what it has
left counts: attempts and verdicts are stored as they come, and of a training the last checkpoint
is evaluated.

OUT/result holds what docs/runs keeps: tables as Parquet, reports, the answers of docs/runs/*.sql.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import store
from store.errors import LakeNotFound
from store.generated.writing import families as families_module
from trainers.models.loading import compute_policy_id

ROOT = Path(store.__file__).parent.parent
QUERIES = ROOT / "docs" / "runs"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_FORM = ("--form", "protocol")
"""Stages 1 and 2 teach the answer that the prompts of stage 3 and of the evaluation ask for."""
_HELD_OUT = (
    "SELECT DISTINCT task_id FROM task_labels INNER JOIN splits USING (suite, family) "
    "WHERE split = 'test'"
)
_GRACE_S = 60
"""After SIGINT a command has so long to store what it holds."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything; words are those of the commands."""

    model: str
    device: str
    """Where kernels are judged: cpu, cuda:0, or several GPUs, cuda:0,cuda:1."""
    train_tasks: int
    test_tasks: int
    kernels: str
    """Languages of the teacher, as in `store import generated --kernels`."""
    starter: bool = False
    """Whether the starter suite is there, for a model that is overfitted on its tasks."""
    teacher: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    """KEY=VALUE, of every judge alike."""
    rows: tuple[str, ...] = ()
    sft: tuple[str, ...] = ()
    self_supervised: tuple[str, ...] = ()
    contrastive: tuple[str, ...] = ()
    rollout: tuple[str, ...] = ()
    arms: tuple[str, ...] = ("bucket", "none")
    repeats: int = 1
    """Trainings of each arm, with seeds of their own."""
    budget_s: float = 600.0


PRESETS = {
    # A random model of 3M parameters that has learnt short answers to two starter tasks by heart:
    # each step has work, and no figure says anything.
    "cpu-small": Sizes(
        model="tiny",
        device="cpu",
        train_tasks=2,
        test_tasks=3,
        kernels="cpu",
        starter=True,
        teacher=(
            "--where",
            "path LIKE '%torch%' OR regexp_matches(path, 'broadcast|row_loop|block_rows|halves')",
        ),
        judge=(
            "calls=3",
            "robustness=false",
            "diagnosis=false",
            "timing_s=1",
            "timing_limit_s=6",
            "blocks=20",
        ),
        rows=("--limit", "4"),
        sft=(
            *("--save-steps", "2", "--trl", "max_steps=2"),
            *("--trl", "per_device_train_batch_size=1", "--trl", "gradient_checkpointing=false"),
        ),
        self_supervised=(
            *("--overfit", "--rounds", "1", "--attempts", "12", "--max-tokens", "96"),
            *("--temperature", "0.7"),
            *("--trl", "per_device_train_batch_size=2", "--trl", "learning_rate=1e-4"),
            *("--trl", "gradient_checkpointing=false"),
        ),
        contrastive=(
            *("--tasks", "diag_matmul", "--tasks", "triangular_matmul"),
            *("--steps", "2", "--prompts-per-step", "2", "--group-size", "4", "--batch", "4"),
            *("--max-completion", "96", "--save-steps", "1", "--reward-rule", "milestone"),
            *("--sampling-temperature", "0.8"),
            # The decay alone makes another model where no group has rewards that differ.
            *("--trl", "learning_rate=1e-4", "--trl", "weight_decay=0.1"),
            *("--trl", "gradient_checkpointing=false"),
        ),
        rollout=("--attempts", "2", "--wave", "2", "--max-tokens", "96"),
    ),
    "h200": Sizes(
        model="",
        device="cuda:0",
        train_tasks=40,
        test_tasks=6,
        kernels="cuda",
        # One language to learn, and the reference said in other words, slow ones among them; a loop
        # over single rows takes longer to judge than it teaches.
        teacher=(
            "--where",
            "path LIKE '%/cuda_%' OR path LIKE '%/torch_%' AND path NOT LIKE '%/torch_rows_1.py'",
        ),
        judge=(
            "calls=8",
            "robustness=false",
            "diagnosis=false",
            "timing_s=0.2",
            "timing_limit_s=1.5",
            "baselines=eager",
        ),
        rows=("--per-policy", "2"),
        sft=(
            *("--max-length", "2560", "--over-length", "drop", "--save-steps", "40"),
            *("--trl", "num_train_epochs=8", "--trl", "per_device_train_batch_size=16"),
            *("--trl", "learning_rate=2e-4", "--trl", "gradient_checkpointing=false"),
        ),
        self_supervised=(
            *("--rounds", "1", "--attempts", "4", "--prompts", "32", "--max-tokens", "832"),
            *("--sampling-batch", "128", "--max-length", "2560", "--over-length", "drop"),
            *("--trl", "per_device_train_batch_size=16", "--trl", "learning_rate=5e-5"),
            *("--trl", "gradient_checkpointing=false"),
        ),
        contrastive=(
            *("--steps", "12", "--prompts-per-step", "4", "--group-size", "8", "--batch", "8"),
            *("--max-length", "5120", "--max-completion", "832", "--save-steps", "2"),
            # A short session has a speed more often than CUDA-L1's rule finds one in it.
            *("--reward-rule", "milestone"),
            # Left out of the loss, answers without an end would be what nothing holds against.
            "--no-mask-truncated",
            *("--trl", "learning_rate=2e-5", "--trl", "gradient_checkpointing=false"),
        ),
        # 64 attempts at each family of two tasks.
        rollout=(
            *("--attempts", "32", "--wave", "32", "--max-tokens", "832"),
            *("--temperature", "0.8", "--batch", "192"),
        ),
        repeats=2,
        budget_s=400.0,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command, and how to see that it has been done."""

    name: str
    words: Callable[[], list[str]]
    """Given when its turn comes: later steps name what earlier ones have made."""
    holds: Callable[[], bool]
    """Whether the lake and the folder have what the command leaves."""
    partial: bool = False
    """Whether what a command has left when its time ran out is of use."""
    place: int | None = None
    """Which of the devices it has to itself; None for all of them."""


class Study:
    """One folder: its lake, its trained models, its markers."""

    def __init__(self, out: Path, sizes: Sizes, seed: int, budget_s: float, total_s: float) -> None:
        self.out, self.sizes, self.seed, self.budget_s = out, sizes, seed, budget_s
        self.ends = time.monotonic() + total_s
        self.lake = out / "lake"
        self.seconds: dict[str, float] = {}

    def count(self, sql: str, **values: Any) -> int:
        """Return the one number that a question gives; 0 where there is no lake yet."""
        try:
            with store.open(str(self.lake)) as lake:
                return int(lake.sql(sql, values).rows()[0]["n"] or 0)
        except LakeNotFound:
            return 0

    @property
    def devices(self) -> list[str]:
        """Return the devices one by one."""
        return self.sizes.device.split(",")

    def steps(self) -> Generator[list[Step]]:
        """Yield all steps in their order; those of a list run side by side."""
        names = families_module.families()
        sides = {
            side: [name for name in names if side == families_module.family(name).SPLIT]
            for side in ("train", "test")
        }
        sizes = self.sizes
        steps = [
            self._imported("train", sides["train"], sizes.train_tasks, sizes.kernels),
            # No kernel of the teacher at the test side: nothing there can leak.
            self._imported("test", sides["test"], sizes.test_tasks, "none"),
        ]
        if sizes.starter:
            steps.append(
                Step(
                    name="import-starter",
                    words=lambda: ["store", "import", "starter", "--no-measured"],
                    holds=lambda: self._tasks("starter", ()) > 0,
                )
            )
        steps += [
            Step(
                name="teacher",
                words=lambda: [
                    *("evaluators", "run", "--device", sizes.device),
                    *sizes.teacher,
                    *self._judge("--"),
                ],
                holds=lambda: self.count("SELECT count(*) AS n FROM evaluations") > 0,
                partial=True,
            ),
            self._dataset("sft-rows", "sft", "train", *sizes.rows, *_FORM),
            self._dataset("held-out", "rl-prompts", "eval", *self._kind()),
            self._dataset("questions", "self-supervised", "train", *_FORM, *self._kind()),
            self._training("sft", self._sft, "sft"),
            self._training("self-supervised", self._self_supervised, "self-supervised"),
        ]  # fmt: skip
        yield from ([step] for step in steps)
        arms = self._arms()
        for at in range(0, len(arms), len(self.devices)):
            group = arms[at : at + len(self.devices)]
            yield [self._arm(*arm, place) for place, arm in enumerate(group)]
        answers = self.attempts()
        yield from [answers] if sizes.device != "cpu" else [[one] for one in answers]
        yield [self._evaluation()]

    def attempts(self) -> list[Step]:
        """Return the steps in which the models that are there answer the held-out questions."""
        # A training that has changed nothing has made no other policy.
        models: dict[str, tuple[str, Path]] = {}
        for name, folder in self.models().items():
            models.setdefault(compute_policy_id(folder), (name, folder))
        return [
            self._attempts(name, folder, policy, place % len(self.devices))
            for place, (policy, (name, folder)) in enumerate(models.items())
        ]

    def models(self) -> dict[str, Path]:
        """Return the policies to evaluate: the base and the last model of every training."""
        base = self._base()
        found = {"base": base} if base is not None else {}
        names = ["sft", "self-supervised"]
        names += [f"contrastive-{arm}-{seed}" for arm, seed in self._arms()]
        return found | {name: made for name in names if (made := self._made(name)) is not None}

    def run(self, step: Step) -> bool:
        """Do a step where it is not done; return whether there is time and ground for the next.

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
        code, in_time = self._command(step, words, limit)
        took = time.monotonic() - begun
        log = self._log(step)
        collapsed = code == 1 and step.name == "self-supervised" and "has collapsed" in log
        # What the time of all steps has cut off goes on another time; a budget of its own is final.
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

    def result(self) -> None:
        """Write OUT/result anew: answers, reports and tables."""
        folder = self.out / "result"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name in ("stage_table", "loop_proof", "run_costs", "run_curves"):
            self._asked_of_the_lake(name, ["FROM " + name], folder)
        for file in sorted(QUERIES.glob("*.sql")):
            self._asked_of_the_lake(file.stem, ["--file", str(file)], folder)
        for name in self.models():
            file = self.out / "runs" / name / "run.json"
            if file.exists():
                run_id = json.loads(file.read_text("utf-8"))["run_id"]
                out = str(folder / "reports" / name)
                self._must("report", ["store", "report", "--run", run_id, "--out", out])
        kernel = self._shown()
        if kernel is not None:
            lineage = self._must("lineage", ["store", "show", kernel, "--lineage"])
            (folder / "lineage.txt").write_text(lineage, "utf-8")
        self._must("export", ["store", "export", "parquet", str(folder / "tables")])
        names, model = {str(self.out): "OUT"}, Path(self.sizes.model)
        masked(folder, names | ({f"{model.parent}/": ""} if model.is_absolute() else {}))
        told = {"seconds": self.seconds, "models": {k: str(v) for k, v in self.models().items()}}
        (self.out / "seconds.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")

    def _imported(self, side: str, families: Sequence[str], count: int, kernels: str) -> Step:
        words = ["store", "import", "generated", "--count", str(count), "--kernels", kernels]
        words += ["--seed", str(self.seed), *(w for name in families for w in ("--families", name))]
        return Step(
            name=f"import-{side}",
            words=lambda: words,
            holds=lambda: self._tasks("generated", families) >= count,
        )

    def _tasks(self, suite: str, families: Sequence[str]) -> int:
        return self.count(
            "SELECT count(DISTINCT task_id) AS n FROM task_labels WHERE suite = $suite AND "
            "(len($families) = 0 OR list_contains($families, family))",
            suite=suite, families=list(families),
        )  # fmt: skip

    def _dataset(self, name: str, pipeline: str, purpose: str, *more: str) -> Step:
        folder = self.out / "data" / name

        def words() -> list[str]:
            # A folder that a killed command has left is no dataset.
            shutil.rmtree(folder, ignore_errors=True)
            return [
                *("pipelines", "run", pipeline, "--purpose", purpose, "--name", name),
                *("--seed", str(self.seed), "--out", str(folder), *more),
            ]

        return Step(
            name=f"data-{name}",
            words=words,
            holds=lambda: (
                folder.exists()
                and self.count("SELECT count(*) AS n FROM datasets WHERE name = $name", name=name)
                > 0
            ),
        )

    def _attempts(self, name: str, folder: Path, policy: str, place: int) -> Step:
        return Step(
            name=f"attempts-{name}",
            words=lambda: [
                *("trainers", "rollout", "--dataset", str(self.out / "data" / "held-out")),
                *("--policy", f"hf:{folder}", "--no-judge", "--keep", "0"),
                *("--seed", str(self.seed), *self.sizes.rollout),
            ],
            holds=lambda: (
                self.count(
                    f"SELECT count(*) AS n FROM generations INNER JOIN ({_HELD_OUT}) "
                    "USING (task_id) WHERE policy_id = $policy",
                    policy=policy,
                )
                > 0
            ),
            partial=True,
            place=place if len(self.devices) > 1 else None,
        )

    def _evaluation(self) -> Step:
        def words() -> list[str]:
            with store.open(str(self.lake)) as lake:
                tasks = ", ".join(f"'{row['task_id']}'" for row in lake.sql(_HELD_OUT).rows())
            return [
                *("evaluators", "run", "--device", self.sizes.device),
                *("--where", f"task_id IN ({tasks})", *self._judge("--")),
            ]

        return Step(
            name="evaluation",
            words=words,
            holds=lambda: (
                self.count(
                    f"SELECT count(*) AS n FROM evaluations INNER JOIN ({_HELD_OUT}) "
                    "USING (task_id)"
                )
                > 0
            ),
            partial=True,
        )

    def _training(self, name: str, words: Callable[[], list[str]], stage: str) -> Step:
        def whole() -> list[str]:
            folder = self.out / "runs" / name
            more = ["--resume"] * (folder / "run.json").exists()
            if not more:
                shutil.rmtree(folder, ignore_errors=True)
            member = "contrastive" if stage == "contrastive" else stage
            return ["trainers", "run", member, *words(), "--out", str(folder), *more]

        return Step(
            name=name,
            words=whole,
            holds=lambda: (
                self._made(name) is not None
                and self.count("SELECT count(*) AS n FROM policies WHERE stage = $s", s=stage) > 0
            ),
            partial=True,
        )

    def _arms(self) -> list[tuple[str, int]]:
        """Return the trainings of stage 3 by arm and seed."""
        seeds = range(self.seed, self.seed + self.sizes.repeats)
        return [(arm, seed) for seed in seeds for arm in self.sizes.arms]

    def _arm(self, arm: str, seed: int, place: int) -> Step:
        words = self._contrastive(arm, seed)
        step = self._training(f"contrastive-{arm}-{seed}", words, "contrastive")
        return replace(step, place=place) if len(self.devices) > 1 else step

    def _sft(self) -> list[str]:
        return [
            *("--model", self.sizes.model, "--dataset", str(self.out / "data" / "sft-rows")),
            *("--seed", str(self.seed), *self.sizes.sft),
        ]

    def _self_supervised(self) -> list[str]:
        return [
            *("--model", str(self._start("sft"))),
            *("--dataset", str(self.out / "data" / "questions")),
            *_FORM,
            *("--device", self.sizes.device, "--seed", str(self.seed)),
            *(word for one in self.sizes.judge for word in ("--judge", one)),
            *self.sizes.self_supervised,
        ]

    def _contrastive(self, arm: str, seed: int) -> Callable[[], list[str]]:
        return lambda: [
            *("--model", str(self._start("self-supervised", "sft")), "--arm", arm),
            # What has a device to itself sees no other.
            *("--device", self.devices[0] if len(self.devices) == 1 else "cuda:0"),
            *("--seed", str(seed)),
            *(word for one in self.sizes.judge for word in ("--judge", one)),
            *self.sizes.contrastive,
        ]

    def _judge(self, prefix: str) -> list[str]:
        """Return the settings of the judge as options; those of trainers are --judge KEY=VALUE."""
        return [f"{prefix}{one.replace('_', '-')}" for one in self.sizes.judge]

    def _kind(self) -> list[str]:
        return ["--device-kind", self.sizes.device.partition(":")[0]]

    def _base(self) -> Path | None:
        """Return the folder of the base model: unpacked or made by the first training."""
        with store.open(str(self.lake)) as lake:
            rows = lake.sql(
                "SELECT json_extract_string(config, '$.folder') AS folder FROM policies "
                "WHERE stage = 'base' ORDER BY created_at LIMIT 1"
            ).rows()
        return Path(rows[0]["folder"]) if rows else None

    def _made(self, name: str) -> Path | None:
        """Return the last whole model of a training, or None."""
        folder = self.out / "runs" / name
        finals = [folder / "final", *folder.glob("round-*/final")]
        whole = [one for one in finals if (one / "config.json").exists()]
        if whole:
            return max(whole, key=lambda one: one.stat().st_mtime)
        steps = [
            one for one in folder.glob("checkpoint-*") if (one / "trainer_state.json").exists()
        ]
        return max(steps, key=lambda one: int(one.name.partition("-")[2]), default=None)

    def _start(self, *names: str) -> Path:
        """Return the model that a training starts from: of the first of these that made one."""
        return next(made for name in names if (made := self._made(name)) is not None)

    def _shown(self) -> str | None:
        """Return a kernel that was written to a prompt with exemplars."""
        with store.open(str(self.lake)) as lake:
            rows = lake.sql(
                "SELECT kernel_id FROM generations WHERE kernel_id IS NOT NULL "
                "AND len(exemplar_kernel_ids) > 0 ORDER BY created_at DESC, kernel_id LIMIT 1"
            ).rows()
        return rows[0]["kernel_id"] if rows else None

    def _asked_of_the_lake(self, name: str, words: list[str], folder: Path) -> None:
        file = str(folder / f"{name}.csv")
        self._must(name, ["store", "query", "--format", "csv", "--out", file, *words])

    def _must(self, name: str, words: list[str]) -> str:
        line = [sys.executable, "-m", *words, "--lake", str(self.lake)]
        done = subprocess.run(
            line, cwd=self.out, env=_environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}: {' '.join(words)}\n{done.stderr}")
        return done.stdout

    def _command(self, step: Step, words: list[str], limit: float) -> tuple[int, bool]:
        """Run a command; return its exit code, and whether it ended in time."""
        logs = self.out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        line = [sys.executable, "-m", *words, "--lake", str(self.lake)]
        environment, cores = _environment(), sorted(os.sched_getaffinity(0))
        if step.place is not None:
            environment |= {"CUDA_VISIBLE_DEVICES": self._visible()[step.place]}
            cores = cores[step.place :: len(self.devices)]

        def prepared() -> None:
            _dies_with_us()
            # Where a shell has started this program in the background, the signal is ignored.
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
                preexec_fn=prepared,
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

    def _visible(self) -> list[str]:
        """Return what CUDA_VISIBLE_DEVICES calls each of the devices."""
        numbers = [one.partition(":")[2] for one in self.devices]
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        return [seen.split(",")[int(number)] for number in numbers] if seen else numbers

    def _log(self, step: Step) -> str:
        file = self.out / "logs" / f"{step.name}.txt"
        return file.read_text("utf-8", errors="replace").rpartition("\n$ ")[2]


def say(step: Step, text: str) -> None:
    """Print a line about a step, in one piece: others say theirs at the same time."""
    sys.stdout.write(f"{step.name:24} {text}\n")
    sys.stdout.flush()


def masked(folder: Path, names: Mapping[str, str]) -> None:
    """Take folders and the names of machines and GPUs out of what is to be published.

    Args:
        folder: What is to be published.
        names: Texts with what stands in their place.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    for file in folder.rglob("*"):
        if file.suffix in (".csv", ".html", ".md", ".txt"):
            text = file.read_text("utf-8")
            for name, other in names.items():
                text = text.replace(name, other).replace(name.replace("_", r"\_"), other)
            file.write_text(text, "utf-8")
        elif file.suffix == ".parquet":
            table = pq.read_table(file)
            for place, column in enumerate(table.schema):
                if column.type not in (pa.string(), pa.large_string()):
                    continue
                texts = table.column(place)
                for name, other in names.items():
                    texts = pc.replace_substring(texts, pattern=name, replacement=other)
                if column.name in ("host", "gpu_uuid"):
                    texts = pa.nulls(table.num_rows, column.type)
                table = table.set_column(place, column, texts)
            pq.write_table(table, file)


def _dies_with_us() -> None:
    """Have the kernel end a command whose driver is gone: two must not train in one folder."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _environment() -> dict[str, str]:
    inherited = os.environ.get("PYTHONPATH")
    path = str(ROOT) if inherited is None else f"{ROOT}{os.pathsep}{inherited}"
    return os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}


@contextlib.contextmanager
def _alone(out: Path) -> Generator[None]:
    """Hold the folder: a second driver in it is refused."""
    import fcntl

    out.mkdir(parents=True, exist_ok=True)
    with (out / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit(f"another process is at work in {out}")
        yield


def main() -> None:
    """Go through the steps, and print what each took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="cpu-small")
    parser.add_argument("--model", help="folder or .gguf file (preset h200 has none of its own)")
    parser.add_argument("--device", help="where kernels are judged; cuda:0,cuda:1 …")
    parser.add_argument("--seed", type=int, default=0, help="of tasks, data and trainings")
    parser.add_argument("--budget-s", type=float, help="longest a step may take")
    parser.add_argument(
        "--total-s",
        type=float,
        default=float("inf"),
        help="after this no step begins or goes on; the same line again does the rest",
    )
    parser.add_argument("--until", help="last step to do; results are written all the same")
    given = parser.parse_args()
    sizes = PRESETS[given.preset]
    model = str(Path(given.model).absolute()) if given.model else sizes.model
    sizes = replace(sizes, model=model, device=given.device or sizes.device)
    if not sizes.model:
        parser.error(f"preset {given.preset} needs --model FOLDER")
    out = given.out.absolute()
    with _alone(out):
        study = Study(out, sizes, given.seed, given.budget_s or sizes.budget_s, given.total_s)
        begun = time.monotonic()
        for steps in study.steps():
            with ThreadPoolExecutor(len(steps)) as threads:
                whole = all(list(threads.map(study.run, steps)))
            if not whole or given.until in [step.name for step in steps]:
                break
        study.result()
        print(f"{'all':24} {time.monotonic() - begun:10.1f} s → {out / 'result'}")


if __name__ == "__main__":
    main()
