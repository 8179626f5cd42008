"""The steps of the experiment: tasks, a teacher's history, training, searches, and measurement."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import store
from lab.exemplar_arms.sizes import TEST, TRAIN, ArmSizes
from lab.three_stages.plan import Step
from lab.three_stages.study import Study

_FORM = ("--form", "protocol")
_PORT = 18080
_PATIENCE_S = 60
QUERIES = (
    "primary", "by_task", "search_arms", "rounds", "training_curves", "training_answers",
    "settings", "uses", "history", "solved_by_none", "isolation", "knobs", "control",
    "changed_knobs", "supervised", "taught_settings", "drawn_settings", "labels", "setting_order",
    "seed_gains", "unsolved_by_none",
)  # fmt: skip
"""Queries of docs/runs that print the figures."""


class ArmStudy(Study):
    """One folder of the experiment."""

    def __init__(
        self,
        out: Path,
        sizes: ArmSizes,
        seed: int,
        budget_s: float,
        total_s: float,
        earlier: Path | None = None,
    ) -> None:
        super().__init__(out, sizes, seed, budget_s, total_s)
        self.arm_sizes = sizes
        self._earlier = earlier
        """Tables of a run whose verdicts are taken over."""

    def check_until(self, until: str | None) -> None:
        """Exit with the names of the steps, before any work, if the last step to do is none."""
        names = [step.name for steps in self.list_steps() for step in steps]
        if until is not None and until not in names:
            sys.exit(f"--until {until} is no step. Choose one of: {', '.join(names)}")

    def list_steps(self) -> Generator[list[Step]]:
        """Yield all steps in their order; those of a list run side by side."""
        for step in self._list_tasks():
            yield [step]
        if self._earlier is not None:
            yield [self._take_over_teacher(self._earlier)]
        yield [self._judge_teacher()]
        yield [self._make_dataset("held-out", "rl-prompts", "eval", *self._kind_words())]
        if self.arm_sizes.sft:
            data = self._make_dataset("sft-rows", "sft", "train", *self.sizes.rows, *_FORM)
            yield [data]
            yield [self._train("sft", self._sft_words, "sft")]
        trained = [
            (arm, seed)
            for seed in (self._seeds() if self.sizes.contrastive else ())
            for arm in self.sizes.arms
        ]
        yield from self._divide(trained, self._train_arm_of_seed)
        # Training data leaves out near copies of attempts at test tasks; such attempts come last.
        if self._earlier is not None:
            yield [self._take_over(self._earlier)]
        if self.arm_sizes.history:
            for step in self._list_held_out("history", self.arm_sizes.kernels):
                yield [step]
            # A search needs all of its history, so a step that was cut off goes on.
            yield [replace(self._judge_teacher(), name="teacher-held-out", partial=False)]
        yield from self._divide(trained, self._answer)
        if self.arm_sizes.search:
            yield [self._search()]
        yield [self._remeasure()]

    def _divide(
        self, pairs: Sequence[tuple[str, int]], make: Callable[[str, int, int], Step]
    ) -> Generator[list[Step]]:
        """Yield steps of arms and seeds that run side by side and divide cores and judges."""
        jobs = self.arm_sizes.jobs
        for at in range(0, len(pairs), jobs):
            group = pairs[at : at + jobs]
            workers = max(1, self.arm_sizes.workers // len(group))
            yield [
                replace(make(arm, seed, workers), part=(place, len(group)))
                for place, (arm, seed) in enumerate(group)
            ]

    def _train_arm_of_seed(self, arm: str, seed: int, workers: int) -> Step:
        words = self._arm_words(arm, seed, workers)
        step = self._train(f"contrastive-{arm}-{seed}", words, "contrastive")
        # Arms are compared after the same number of steps, so a training that was cut off goes on.
        return replace(step, partial=False)

    def _take_over(self, tables: Path) -> Step:
        return Step(
            name="earlier",
            words=lambda: ["lab.exemplar_arms.earlier", str(tables)],
            holds=lambda: self._count_attempts("earlier/%") > 0,
        )

    def _take_over_teacher(self, tables: Path) -> Step:
        words = ["lab.exemplar_arms.earlier", str(tables), *self.sizes.teacher]
        return Step(name="earlier-teacher", words=lambda: words, holds=self._has_evaluations)

    def _list_tasks(self) -> list[Step]:
        """Return the steps that make tasks: the same number for each family of a side."""
        sizes = self.arm_sizes
        return [
            self._import_tasks("train", TRAIN, sizes.train_tasks, sizes.kernels),
            *self._list_held_out("import", "none"),
        ]

    def _list_held_out(self, verb: str, kernels: str) -> list[Step]:
        """Return the steps that import held-out tasks, with the teacher's kernels or none."""
        sizes = self.arm_sizes
        held_out = tuple(f"{name}:held-out" for name in TRAIN)
        options = ("--kernels", kernels, "--held-out", *sizes.held_out_options)
        return [
            self._import_side(f"{verb}-held-out", TRAIN, held_out, sizes.held_out_tasks, *options),
            self._import_side(
                f"{verb}-families", TEST, TEST, sizes.test_tasks, "--kernels", kernels
            ),
        ]

    def _judge_teacher(self) -> Step:
        """Return the step that judges the history of the teacher."""
        sizes = self.arm_sizes
        return Step(
            name="teacher",
            words=lambda: [
                *("evaluators", "run", "--on", sizes.device),
                *("--workers", str(sizes.workers)),
                *sizes.teacher,
                *self._judge_words("--"),
            ],
            holds=self._has_evaluations,
            partial=True,
        )

    def _has_evaluations(self) -> bool:
        return self.count("SELECT count(*) AS n FROM evaluations") > 0

    def _import_side(
        self, name: str, families: tuple[str, ...], labels: tuple[str, ...], count: int, *more: str
    ) -> Step:
        words = ["store", "import", "generated", "--count", str(count), *more]
        words += ["--seed", str(self.seed), *(w for name in families for w in ("--families", name))]
        return Step(
            name=name,
            words=lambda: words,
            holds=lambda: self._count_tasks("generated", labels) >= count,
        )

    def _seeds(self) -> range:
        first = self.arm_sizes.first_seed
        return range(first, first + self.arm_sizes.seeds)

    def _arm_words(self, arm: str, seed: int, workers: int) -> Callable[[], list[str]]:
        return lambda: [
            *("--model", str(self._find_start("sft")), "--strategy", arm),
            *("--namespace", f"stage3/{arm}/{seed}", "--on", self.sizes.device),
            *("--workers", str(workers), "--seed", str(seed)),
            *(*self._judge_options(), *self.sizes.contrastive),
        ]

    def _answer(self, arm: str, seed: int, workers: int) -> Step:
        """Let a model of stage 3 search the held-out tasks with prompts of its arm."""
        search = f"trained-{arm}"
        return Step(
            name=f"answers-{arm}-{seed}",
            words=lambda: [
                *self._rollout_words(
                    f"hf:{self._find_start(f'contrastive-{arm}-{seed}')}", workers
                ),
                *("--search", search, "--strategy", arm, "--seed", str(seed)),
                *self.sizes.rollout,
            ],
            holds=lambda: self._count_attempts(f"{search}/{arm}/{seed}/%") > 0,
            partial=True,
        )

    def _search(self) -> Step:
        """Search the held-out tasks with all arms and seeds."""
        turner = self.sizes.model == "turner"
        policy = f"http://127.0.0.1:{_PORT}/v1#turner" if turner else None
        return Step(
            name="search",
            words=lambda: [
                *self._rollout_words(
                    policy or f"hf:{self._find_start('sft')}", self.arm_sizes.workers
                ),
                *("--search", "arms", "--seed", str(self._seeds().start)),
                *("--seeds", str(self.arm_sizes.seeds)),
                *(word for arm in self.sizes.arms for word in ("--strategy", arm)),
                *self.arm_sizes.search,
            ],
            holds=lambda: self._count_attempts("arms/%") > 0,
        )

    def _rollout_words(self, policy: str, workers: int) -> list[str]:
        judge = (f"--evaluation.{one.replace('_', '-')}" for one in self.sizes.judge)
        return [
            *("trainers", "rollout", "--dataset", str(self.out / "data" / "held-out")),
            *("--policy", policy, "--on", self.sizes.device, *judge),
            *("--workers", str(workers)),
        ]

    def _remeasure(self) -> Step:
        baselines = next(one for one in self.sizes.judge if one.startswith("baselines="))
        return Step(
            name="remeasure",
            words=lambda: [
                "lab.exemplar_arms.remeasure",
                *("--device", self.sizes.device, "--judge", baselines),
                *("--workers", str(self.arm_sizes.workers)),
            ],
            holds=lambda: True,
            partial=True,
        )

    def _judge_options(self) -> list[str]:
        return [word for one in self.sizes.judge for word in ("--judge", one)]

    def _count_attempts(self, pattern: str) -> int:
        return self.count(
            "SELECT count(*) AS n FROM generations WHERE namespace LIKE $pattern", pattern=pattern
        )

    def run_command(self, step: Step, words: list[str], limit: float) -> tuple[int, bool]:
        """Run a command, beside the turner where it searches with it."""
        with self._serve() if step.name == "search" else contextlib.nullcontext():
            return super().run_command(step, words, limit)

    @contextlib.contextmanager
    def _serve(self) -> Generator[None]:
        """Serve the turner on loopback while a search runs; nothing for a model."""
        if self.sizes.model != "turner":
            yield
            return
        module = "lab.exemplar_arms.turner"
        words = ["--port", str(_PORT), "--seed", str(self.seed)]
        root = Path(store.__file__).parent.parent
        server = subprocess.Popen([sys.executable, "-m", module, *words], cwd=root)
        try:
            self._wait_for(server)
            yield
        finally:
            server.terminate()
            server.wait()

    def _wait_for(self, server: subprocess.Popen[bytes]) -> None:
        """Wait until the server answers; leave where it has ended."""
        ends = time.monotonic() + _PATIENCE_S
        while time.monotonic() < ends and server.poll() is None:
            with contextlib.suppress(urllib.error.URLError):
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{_PORT}/", timeout=1).close()
                except urllib.error.HTTPError:
                    return
            time.sleep(0.2)
        sys.exit("the turner does not answer")

    def write_result(self) -> None:
        """Write OUT/result: the answers of the queries, the curves, and the tables."""
        folder = self.out / "result"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._write_answer("search_curves", ["FROM search_curves"], folder)
        for name in QUERIES:
            file = Path(store.__file__).parent.parent / "docs" / "runs" / f"{name}.sql"
            self._write_answer(name, ["--file", str(file)], folder)
        self.export_tables(folder)
