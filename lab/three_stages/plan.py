"""The steps of the experiment, in order: their commands, and how to check that each is done."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import store
from lab.three_stages.sizes import Sizes
from store.errors import LakeNotFound
from store.generated.writing import families
from trainers.models.loading import compute_policy_id, is_whole_model

_FORM = ("--form", "protocol")
"""Stages 1 and 2 teach the answer that the prompts of stage 3 and of the evaluation ask for."""
_HELD_OUT = (
    "SELECT DISTINCT task_id FROM task_labels INNER JOIN splits USING (suite, family) "
    "WHERE split = 'test'"
)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One command, and how to check that it is done."""

    name: str
    words: Callable[[], list[str]]
    """Computed when the step starts, because later steps name results of earlier ones."""
    holds: Callable[[], bool]
    """Whether the lake and the folder have the results of the command."""
    partial: bool = False
    """Whether the results are useful if the command runs out of time."""
    place: int | None = None
    """The device that it uses alone; None for all devices."""
    part: tuple[int, int] | None = None
    """Which part of the cores it uses, counted from 0, and the number of parts; None for all."""


class Plan:
    """The steps of one folder: its lake, its datasets, its trained models."""

    def __init__(self, out: Path, sizes: Sizes, seed: int) -> None:
        self.out, self.sizes, self.seed = out, sizes, seed
        self.lake = out / "lake"

    def count(self, sql: str, **values: Any) -> int:
        """Return the number that a query gives; 0 if there is no lake yet."""
        try:
            with store.open(str(self.lake)) as lake:
                return int(lake.sql(sql, values).rows()[0]["n"] or 0)
        except LakeNotFound:
            return 0

    @property
    def devices(self) -> list[str]:
        """Return the devices one by one."""
        return self.sizes.device.split(",")

    def list_steps(self) -> Generator[list[Step]]:
        """Yield all steps in their order; those of a list run side by side."""
        names = families.family_names()
        sides = {
            side: [name for name in names if side == families.load_family(name).SPLIT]
            for side in ("train", "test")
        }
        sizes = self.sizes
        steps = [
            self._import_tasks("train", sides["train"], sizes.train_tasks, sizes.kernels),
            # No kernel of the teacher on the test side, so that nothing there can leak.
            self._import_tasks("test", sides["test"], sizes.test_tasks, "none"),
        ]
        if sizes.starter:
            steps.append(
                Step(
                    name="import-starter",
                    words=lambda: ["store", "import", "starter", "--no-measured"],
                    holds=lambda: self._count_tasks("starter", ()) > 0,
                )
            )
        steps += [
            Step(
                name="teacher",
                words=lambda: [
                    *("evaluators", "run", "--on", sizes.device),
                    *sizes.teacher,
                    *self._judge_words("--"),
                ],
                holds=lambda: self.count("SELECT count(*) AS n FROM evaluations") > 0,
                partial=True,
            ),
            self._make_dataset("sft-rows", "sft", "train", *sizes.rows, *_FORM),
            self._make_dataset("held-out", "rl-prompts", "eval", *self._kind_words()),
            self._make_dataset(
                "questions", "self-supervised", "train", *_FORM, *self._kind_words()
            ),
            self._train("sft", self._sft_words, "sft"),
            self._train("self-supervised", self._self_supervised_words, "self-supervised"),
        ]  # fmt: skip
        yield from ([step] for step in steps)
        arms = self._list_arms()
        for at in range(0, len(arms), len(self.devices)):
            group = arms[at : at + len(self.devices)]
            yield [self._train_arm(*arm, place) for place, arm in enumerate(group)]
        answers = self.list_attempts()
        yield from [answers] if sizes.device != "cpu" else [[one] for one in answers]
        yield [self._evaluate()]

    def list_attempts(self) -> list[Step]:
        """Return the steps in which the trained models answer the held-out prompts."""
        # A training that has changed nothing has not made a new policy.
        models: dict[str, tuple[str, Path]] = {}
        for name, folder in self.find_models().items():
            models.setdefault(compute_policy_id(folder), (name, folder))
        return [
            self._sample(name, folder, policy, place % len(self.devices))
            for place, (policy, (name, folder)) in enumerate(models.items())
        ]

    def find_models(self) -> dict[str, Path]:
        """Return the policies to evaluate: the base and the last model of every training."""
        base = self._find_base()
        found = {"base": base} if base is not None else {}
        names = ["sft", "self-supervised"]
        names += [f"contrastive-{arm}-{seed}" for arm, seed in self._list_arms()]
        return found | {
            name: made for name in names if (made := self._find_model(name)) is not None
        }

    def _import_tasks(self, side: str, members: Sequence[str], count: int, kernels: str) -> Step:
        words = ["store", "import", "generated", "--count", str(count), "--kernels", kernels]
        words += ["--seed", str(self.seed), *(w for name in members for w in ("--families", name))]
        return Step(
            name=f"import-{side}",
            words=lambda: words,
            holds=lambda: self._count_tasks("generated", members) >= count,
        )

    def _count_tasks(self, suite: str, members: Sequence[str]) -> int:
        return self.count(
            "SELECT count(DISTINCT task_id) AS n FROM task_labels WHERE suite = $suite AND "
            "(len($families) = 0 OR list_contains($families, family))",
            suite=suite, families=list(members),
        )  # fmt: skip

    def _make_dataset(self, name: str, pipeline: str, purpose: str, *more: str) -> Step:
        folder = self.out / "data" / name

        def words() -> list[str]:
            # The folder of a killed command is not a dataset.
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

    def _sample(self, name: str, folder: Path, policy: str, place: int) -> Step:
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

    def _evaluate(self) -> Step:
        def words() -> list[str]:
            with store.open(str(self.lake)) as lake:
                tasks = ", ".join(f"'{row['task_id']}'" for row in lake.sql(_HELD_OUT).rows())
            return [
                *("evaluators", "run", "--on", self.sizes.device),
                *("--where", f"task_id IN ({tasks})", *self._judge_words("--")),
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

    def _train(self, name: str, words: Callable[[], list[str]], stage: str) -> Step:
        def write_command() -> list[str]:
            folder = self.out / "runs" / name
            more = ["--resume"] * (folder / "run.json").exists()
            if not more:
                shutil.rmtree(folder, ignore_errors=True)
            member = "contrastive" if stage == "contrastive" else stage
            return ["trainers", "run", member, *words(), "--out", str(folder), *more]

        return Step(
            name=name,
            words=write_command,
            holds=lambda: (
                self._find_model(name) is not None
                and self.count("SELECT count(*) AS n FROM policies WHERE stage = $s", s=stage) > 0
            ),
            partial=True,
        )

    def _list_arms(self) -> list[tuple[str, int]]:
        """Return the trainings of stage 3 by arm and seed."""
        seeds = range(self.seed, self.seed + self.sizes.repeats)
        return [(arm, seed) for seed in seeds for arm in self.sizes.arms]

    def _train_arm(self, arm: str, seed: int, place: int) -> Step:
        words = self._contrastive_words(arm, seed)
        step = self._train(f"contrastive-{arm}-{seed}", words, "contrastive")
        return replace(step, place=place) if len(self.devices) > 1 else step

    def _sft_words(self) -> list[str]:
        return [
            *("--model", self.sizes.model, "--dataset", str(self.out / "data" / "sft-rows")),
            *("--seed", str(self.seed), *self.sizes.sft),
        ]

    def _self_supervised_words(self) -> list[str]:
        return [
            *("--model", str(self._find_start("sft"))),
            *("--dataset", str(self.out / "data" / "questions")),
            *_FORM,
            *("--on", self.sizes.device, "--seed", str(self.seed)),
            *(word for one in self.sizes.judge for word in ("--judge", one)),
            *self.sizes.self_supervised,
        ]

    def _contrastive_words(self, arm: str, seed: int) -> Callable[[], list[str]]:
        return lambda: [
            *("--model", str(self._find_start("self-supervised", "sft")), "--strategy", arm),
            *("--namespace", f"contrastive/{arm}/{seed}"),
            # A step with its own device does not see the others.
            *("--on", self.devices[0] if len(self.devices) == 1 else "cuda:0"),
            *("--seed", str(seed)),
            *(word for one in self.sizes.judge for word in ("--judge", one)),
            *self.sizes.contrastive,
        ]

    def _judge_words(self, prefix: str) -> list[str]:
        """Return the settings of the judge as options; those of trainers are --judge KEY=VALUE."""
        return [f"{prefix}{one.replace('_', '-')}" for one in self.sizes.judge]

    def _kind_words(self) -> list[str]:
        return ["--device-kind", self.sizes.device.partition(":")[0]]

    def _find_base(self) -> Path | None:
        """Return the folder of the base model, which the first training unpacks or makes."""
        with store.open(str(self.lake)) as lake:
            rows = lake.sql(
                "SELECT json_extract_string(config, '$.folder') AS folder FROM policies "
                "WHERE stage = 'base' ORDER BY created_at LIMIT 1"
            ).rows()
        return Path(rows[0]["folder"]) if rows else None

    def _find_model(self, name: str) -> Path | None:
        """Return the last whole model of a training, or None."""
        folder = self.out / "runs" / name
        finals = [folder / "final", *folder.glob("round-*/final")]
        whole = [one for one in finals if is_whole_model(one)]
        if whole:
            return max(whole, key=lambda one: one.stat().st_mtime)
        steps = [
            one for one in folder.glob("checkpoint-*") if (one / "trainer_state.json").exists()
        ]
        return max(steps, key=lambda one: int(one.name.partition("-")[2]), default=None)

    def _find_start(self, *names: str) -> Path:
        """Return the model that a training starts from: that of the first of these trainings."""
        return next(made for name in names if (made := self._find_model(name)) is not None)
