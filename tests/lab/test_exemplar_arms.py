"""The experiment with arms: its instrument, a search with it, and the queries of its figures."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import builders
import pytest

import store
from evaluators.scheduling.pool import Pair, Pool
from lab import merge
from lab.exemplar_arms import remeasure
from lab.exemplar_arms.sizes import ARMS, PRESETS, TEST, TRAIN
from lab.exemplar_arms.study import ArmStudy
from lab.exemplar_arms.turner import Turner, make_handler
from pipelines import ExemplarOptions
from store import ids
from store.errors import FlywheelError
from store.generated.writing import families
from store.importers import generated
from store.importers.reading.pieces import run_import
from store.lake.location import Location
from store.upkeep import integrity
from trainers.policies.interface import Sampling, open_policy
from trainers.rollouts.attempts import ShownPrompt
from trainers.rollouts.prompts import Draw, render_prompts
from trainers.rollouts.waves import Config, Search, run_search

QUERIES = Path(__file__).parents[2] / "docs" / "runs"
ROUNDS, ATTEMPTS = 3, 6
DEVICE = builders.device("cpu", kind="cpu")


def read_speed(code: str) -> float:
    """Return the speedup of a kernel in a world in which larger constants are always faster."""
    values = re.findall(r"^[A-Z_]+ = (\d+)  #", code, re.MULTILINE)
    return round(1 + sum(math.log2(int(value)) for value in values) / 4, 2)


@dataclass
class Stopwatch:
    """A judge that stores sessions with the speedup that the constants give."""

    lake: str
    model: str = "cpu"

    @dataclass
    class Verdict:
        status: str = "correct"
        quarantined: bool = False
        equivalent: bool = True

    @property
    def device(self) -> dict[str, str]:
        return {"name": self.model}

    def judge(self, wanted: Sequence[Pair]) -> dict[Pair, Any]:
        with store.open(self.lake) as lake:
            codes = {
                row["kernel_id"]: row["code"]
                for row in lake.run("SELECT kernel_id, code FROM kernels").rows()
            }
            known = {
                (row["kernel_id"], row["task_id"])
                for row in lake.run("SELECT kernel_id, task_id FROM evaluations").rows()
            }
        rows: dict[str, list[dict[str, Any]]] = {"evaluations": [], "timings": [], "scans": []}
        for kernel, task in dict.fromkeys(wanted):
            if (kernel, task) in known:
                continue
            # A judge reads the text as well; no prompt shows a kernel that nobody has read.
            rows["scans"].append(builders.scan({"kernel_id": kernel}))
            verdict = builders.evaluation(
                {"kernel_id": kernel},
                {"task_id": task},
                {"workload_id": ids.workload_id(task)},
                DEVICE,
            )
            rows["evaluations"].append(verdict)
            speed = read_speed(codes[kernel])
            rows["timings"] += builders.session(verdict, [1.0] * 7, eager=[speed] * 7)
        with store.writer(self.lake, author="judge") as writer:
            writer.append({"runs": [builders.audit()], **rows}, "verdicts")
        return {pair: Stopwatch.Verdict() for pair in wanted}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Return the address of a turner on loopback."""
    served = ThreadingHTTPServer(("127.0.0.1", 0), make_handler(Turner(0)))
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{served.server_address[1]}/v1#turner"
    served.shutdown()
    thread.join()
    served.server_close()


@pytest.fixture(scope="module")
def lake_url(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with held-out tasks of known families, and of a held-out family."""
    url = str(tmp_path_factory.mktemp("arms") / "lake")
    shutil.copytree(empty_lake, url)
    with store.writer(url, author="tests") as writer:
        for options in (
            generated.Config(kernels="none", families=TRAIN[:1], count=2, held_out=True),
            generated.Config(kernels="none", families=TEST, count=1),
        ):
            run_import(writer, generated, None, options)
        writer.append({"devices": [DEVICE]}, "device")
    return url


def list_prompts(lake_url: str) -> list[ShownPrompt]:
    draw = Draw(arm="none", device="cpu", purpose="eval")
    with store.open(lake_url) as lake:
        tasks = [row["task_id"] for row in lake.run("FROM tasks ORDER BY task_id").rows()]
        return render_prompts(lake, draw, 0, tasks)


def search_with_all_arms(url: str, server: str, seed: int, rounds: int = ROUNDS) -> None:
    run_search(
        url,
        [open_policy(server)],
        list_prompts(url),
        Sampling(seed=seed),
        Config(attempts=ATTEMPTS),
        Search(rounds=rounds, strategy=ARMS, search="arms"),
        ExemplarOptions(),
        cast("Pool", Stopwatch(url)),
        lambda *told: None,
    )


@pytest.fixture(scope="module")
def searched(lake_url: str, server: str) -> Iterator[store.Lake]:
    """Return the lake after searches with all arms and two seeds."""
    for seed in (0, 1):
        search_with_all_arms(lake_url, server, seed)
    with store.open(lake_url) as lake:
        yield lake


def ask(lake: store.Lake, name: str) -> list[dict[str, Any]]:
    return lake.sql((QUERIES / f"{name}.sql").read_text("utf-8")).rows()


@pytest.mark.slow
def test_the_turner_changes_one_constant_of_the_kernel_that_looks_fastest() -> None:
    slow = "A = 1  # 1, 2\nB = 4  # 4, 8, 16\nclass ModelNew: pass"
    fast = slow.replace("A = 1", "A = 2")
    prompt = "\n".join(
        f"### Kernel {place}: {score:.2f}x\n\n```python\n{code}\n```\n"
        for place, (score, code) in enumerate(((1.5, slow), (3.25, fast)), start=1)
    )
    turner = Turner(0)
    answers = {turner.answer(prompt, 0, place) for place in range(8)}
    assert answers == {turner.answer(prompt, 0, place) for place in range(8)}
    assert len(answers) > 1
    for answer in answers:
        assert "Fastest: Kernel 2" in answer
        code = answer.split("```python\n")[1].split("\n```")[0]
        changed = [
            (one, other)
            for one, other in zip(fast.splitlines(), code.splitlines(), strict=True)
            if one != other
        ]
        assert len(changed) == 1


@pytest.mark.slow
def test_without_kernels_the_turner_changes_one_constant_of_the_plainest_triton_kernel() -> None:
    task = next(iter(families.generate_tasks(("tuned_rows",), 0)))[1]
    turner = Turner(0)
    answers = {turner.answer(f"It runs on a GPU.\n{task.code}", 0, place) for place in range(12)}
    assert len(answers) > 1
    for answer in answers:
        assert "import triton" in answer
        knobs = re.findall(r"^[A-Z_]+ = (\d+)  # (\d+)", answer, re.MULTILINE)
        assert sum(value != first for value, first in knobs) == 1


def test_a_prompt_about_another_task_is_refused() -> None:
    with pytest.raises(LookupError, match="about no task"):
        Turner(0).answer("Write a poem.", 0, 0)


@pytest.mark.slow
def test_the_queries_print_the_figures_of_the_protocol(searched: store.Lake) -> None:
    isolation = ask(searched, "isolation")
    assert len(isolation) == 2 * (len(ARMS) - 1)
    assert {row["leaked"] for row in isolation} == {0}
    figures = {
        (row["side"], row["arm"], row["other"]): row
        for row in ask(searched, "primary")
        if row["part"] == "search"
    }
    assert len(figures) == 2 * (len(ARMS) + len(ARMS) * (len(ARMS) - 1))
    for (side, arm, other), row in figures.items():
        assert (row["tasks"], row["seeds"]) == (2 if side == "held-out tasks" else 1, 2)
        assert row["low"] <= row["geomean"] <= row["high"]
        if other is not None:
            inverse = figures[side, other, arm]
            assert row["geomean"] == pytest.approx(1 / inverse["geomean"], rel=1e-3)
    # The geometric mean is that of the best constants that each arm and seed has found.
    written = searched.sql(
        "SELECT namespace, task_id, code FROM generations JOIN kernels USING (kernel_id) "
        "JOIN task_names USING (task_id) WHERE family = 'tuned_rows:held-out' "
        "AND namespace LIKE 'arms/bucket/%'"
    ).rows()
    best: dict[tuple[str, str], float] = {}
    for row in written:
        key = (row["namespace"], row["task_id"])
        best[key] = max(best.get(key, 1.0), read_speed(row["code"]))
    mean = math.exp(sum(map(math.log, best.values())) / len(best))
    assert figures["held-out tasks", "bucket", None]["geomean"] == pytest.approx(mean, rel=1e-3)


@pytest.mark.slow
def test_secondary_figures_count_attempts_and_what_answers_use(searched: store.Lake) -> None:
    rows = ask(searched, "search_arms")
    by_arm = {(row["side"], row["arm"]): row for row in rows}
    assert {arm for _, arm in by_arm} == set(ARMS)
    for (side, _), row in by_arm.items():
        assert row["attempts"] == 2 * ATTEMPTS * (2 if side == "held-out tasks" else 1)
        assert (row["with_code"], row["correct"], row["fast_1"]) == (row["attempts"], 1.0, 1.0)
        assert row["seconds"] > 0
    check_rounds(searched)
    uses = {row["arm"]: row for row in ask(searched, "uses")}
    assert set(uses) == set(ARMS) - {"none"}
    for arm, row in uses.items():
        assert row["names_fastest"] == 1.0
        assert 0 < row["other_setting"] <= 1 - row["copies"]
        # The instrument believes the scores that it is shown.
        assert row["to_fastest"] > 0.7
        if arm in ("top", "bucket"):
            assert row["to_truly_fastest"] == row["to_fastest"]
    assert uses["shuffled"]["to_truly_fastest"] < uses["bucket"]["to_truly_fastest"]


@pytest.mark.slow
def test_verdicts_on_the_teacher_can_come_before_the_attempts(
    searched: store.Lake, lake_url: str, empty_lake: Path, tmp_path: Path
) -> None:
    tables, old, new = (tmp_path / name for name in ("tables", "old", "new"))
    shutil.copytree(lake_url, old)
    shutil.copytree(empty_lake, new)
    for url in (old, new):
        with store.writer(str(url), author="tests") as writer:
            options = generated.Config(kernels="cpu", families=TRAIN[:1], count=1)
            run_import(writer, generated, None, options)
    with store.open(str(old)) as lake:
        pairs = lake.sql(
            "SELECT kernel_id, task_id FROM generations JOIN kernels USING (kernel_id) "
            "WHERE namespace IS NULL AND path LIKE '%cpp_tuned_%'"
        ).rows()
    Stopwatch(str(old)).judge([(row["kernel_id"], row["task_id"]) for row in pairs])
    export(str(old), tables)
    take_over(tables, str(new), "--where", "path LIKE '%cpp_tuned_%'")
    with store.open(str(new)) as lake:
        assert not lake.sql("FROM generations WHERE namespace IS NOT NULL").rows()
        taken = lake.sql(
            "SELECT DISTINCT kernel_id FROM timings WHERE kernel_id IS NOT NULL"
        ).rows()
        assert {row["kernel_id"] for row in taken} == {row["kernel_id"] for row in pairs}
    take_over(tables, str(new))
    with store.open(str(old)) as lake, store.open(str(new)) as other:
        for name in ("evaluations", "timings", "generations"):
            assert (
                other.sql(f"FROM {name}").arrow().num_rows
                == lake.sql(f"FROM {name}").arrow().num_rows
            )


def check_rounds(searched: store.Lake) -> None:
    """Compare the results of single attempts with those that the codes give."""
    attempts = searched.sql(
        "SELECT split_part(namespace, '/', 2) AS arm, step, task_id, family, code FROM generations "
        "JOIN task_names USING (task_id) JOIN kernels USING (kernel_id) "
        "WHERE namespace LIKE 'arms/%'"
    ).rows()
    best: dict[str, float] = defaultdict(float)
    speeds: dict[tuple[str, str, int], list[tuple[str, float]]] = defaultdict(list)
    for row in attempts:
        speed = read_speed(row["code"])
        best[row["task_id"]] = max(best[row["task_id"]], speed)
        side = "held-out tasks" if row["family"].endswith(":held-out") else "held-out families"
        speeds[side, row["arm"], row["step"]].append((row["task_id"], speed))
    found = ask(searched, "rounds")
    assert {(row["side"], row["arm"], row["round"]) for row in found} == set(speeds)
    for row in found:
        made = speeds[row["side"], row["arm"], row["round"]]
        assert (row["attempts"], row["scored"]) == (len(made), 1.0)
        mean = math.exp(sum(math.log(speed) for _, speed in made) / len(made))
        assert row["geomean"] == pytest.approx(mean, abs=1e-3)
        near = sum(speed >= best[task] / 1.05 for task, speed in made) / len(made)
        assert row["near_best"] == pytest.approx(near, abs=1e-3)
        assert (row["shown"] > 0) == (row["arm"] != "none" and row["round"] > 1)
    check_tasks(searched, best)


def check_tasks(searched: store.Lake, best: dict[str, float]) -> None:
    """Compare the best speedups at each task with those that the codes give."""
    names = {
        row["title"]: row["task_id"]
        for row in searched.sql("SELECT title, task_id FROM task_names").rows()
    }
    bests: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in searched.sql(
        "SELECT namespace, task_id, code FROM generations JOIN kernels USING (kernel_id) "
        "WHERE namespace LIKE 'arms/%'"
    ).rows():
        _, arm, seed, _ = row["namespace"].split("/")
        seeds = bests[row["task_id"], arm]
        seeds[seed] = max(seeds[seed], read_speed(row["code"]))
    found = ask(searched, "by_task")
    assert {(names[row["task"]], row["arm"]) for row in found} == set(bests)
    for row in found:
        task = names[row["task"]]
        made = bests[task, row["arm"]].values()
        assert (row["seeds"], row["correct"]) == (len(made), 1.0)
        assert row["best"] == pytest.approx(best[task], abs=1e-3)
        mean = math.exp(sum(map(math.log, made)) / len(made))
        assert row["geomean"] == pytest.approx(mean, abs=1e-3)
        assert row["near_best"] == sum(speed >= best[task] / 1.05 for speed in made)
    assert any(row["near_best"] for row in found)


def export(lake_url: str, tables: Path) -> None:
    words = ("store", "export", "parquet", str(tables), "--lake", lake_url)
    subprocess.run([sys.executable, "-m", *words], check=True)


def take_over(tables: Path, lake_url: str, *words: str) -> None:
    module = "lab.exemplar_arms.earlier"
    line = [sys.executable, "-m", module, str(tables), "--lake", lake_url, *words]
    subprocess.run(line, check=True)


def list_unmeasured_bests(lake: store.Lake) -> list[dict[str, Any]]:
    return lake.run(store.read_sql(remeasure.__file__, "unmeasured_bests"), [1]).rows()


def test_a_piece_trains_one_arm_with_one_seed(tmp_path: Path) -> None:
    sizes = replace(PRESETS["gpu-stage3"], model="m", arms=("bucket",), seeds=1, first_seed=2)
    study = ArmStudy(tmp_path, sizes, 0, 1.0, 1.0)
    steps = {step.name: step for [step] in study.list_steps()}
    assert [*steps][-4:] == ["sft", "contrastive-bucket-2", "answers-bucket-2", "remeasure"]
    # Otherwise its last checkpoint would stand for the arm, after fewer steps than another arm has.
    assert not steps["contrastive-bucket-2"].partial


def test_a_search_with_a_history_judges_the_teacher_after_the_training(tmp_path: Path) -> None:
    study = ArmStudy(tmp_path, replace(PRESETS["gpu-history"], model="m"), 0, 1.0, 1.0)
    steps = {step.name: step for [step] in study.list_steps()}
    names = ["sft", "history-held-out", "history-families", "teacher-held-out", "search"]
    assert [*steps][-6:] == [*names, "remeasure"]
    assert not steps["teacher-held-out"].partial
    for before, after in (("import-held-out", names[1]), ("import-families", names[2])):
        made = [" ".join(steps[name].words()) for name in (before, after)]
        assert "--kernels none" in made[0]
        assert made[0].replace("--kernels none", "--kernels cuda") == made[1]


@pytest.fixture(scope="module")
def with_history(
    empty_lake: Path, server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[store.Lake]:
    """Return a lake with the teacher's kernels for held-out tasks, after searches with all arms."""
    url = str(tmp_path_factory.mktemp("history") / "lake")
    shutil.copytree(empty_lake, url)
    with store.writer(url, author="tests") as writer:
        options = generated.Config(families=TRAIN[:1], count=2, held_out=True, kernels="cpu")
        run_import(writer, generated, None, options)
        writer.append({"devices": [DEVICE]}, "device")
    with store.open(url) as lake:
        taught = lake.sql(
            "SELECT kernel_id, task_id FROM generations JOIN kernels USING (kernel_id) "
            "WHERE path LIKE '%cpp_tuned_%'"
        ).rows()
    with store.writer(url, author="tests") as writer:
        scans = [builders.scan(row) for row in taught]
        writer.append({"runs": [builders.audit()], "scans": scans}, "an audit")
    Stopwatch(url).judge([(row["kernel_id"], row["task_id"]) for row in taught])
    for seed in (0, 1):
        search_with_all_arms(url, server, seed, rounds=1)
    with store.open(url) as lake:
        yield lake


@pytest.mark.slow
def test_prompts_of_all_arms_show_the_history_of_a_task(with_history: store.Lake) -> None:
    rows = ask(with_history, "isolation")
    assert {row["namespace"].split("/")[1] for row in rows} == {*ARMS} - {"none"}
    assert all(row["common"] > 0 and row["own"] == row["leaked"] == 0 for row in rows)


@pytest.mark.slow
def test_answers_are_compared_with_the_history_of_their_task(with_history: store.Lake) -> None:
    rows = with_history.sql(
        "SELECT namespace, task_id, kernel_id, code, exemplar_kernel_ids FROM generations "
        "JOIN kernels USING (kernel_id) WHERE namespace IS NOT NULL OR path LIKE '%cpp_tuned_%'"
    ).rows()
    speeds = {row["kernel_id"]: read_speed(row["code"]) for row in rows}
    fastest: dict[str, float] = defaultdict(float)
    for row in rows:
        if row["namespace"] is None:
            fastest[row["task_id"]] = max(fastest[row["task_id"]], speeds[row["kernel_id"]])
    taught = {(row["task_id"], row["code"]) for row in rows if row["namespace"] is None}
    found = {row["arm"]: row for row in ask(with_history, "history")}
    assert set(found) == {*ARMS}
    # An answer has another path, and so another id, than the kernel that it repeats.
    assert any(told["copies"] > 0 for told in found.values())
    for arm, told in found.items():
        made = [row for row in rows if f"/{arm}/" in (row["namespace"] or "")]
        assert (told["tasks"], told["seeds"], told["answers"]) == (2, 2, len(made))
        logs = [math.log(value) for value in fastest.values()]
        assert told["history"] == pytest.approx(math.exp(sum(logs) / 2), abs=1e-3)
        over = [speeds[row["kernel_id"]] > 1.02 * fastest[row["task_id"]] for row in made]
        repeats = [(row["task_id"], row["code"]) in taught for row in made]
        assert told["copies"] == pytest.approx(sum(repeats) / len(made), abs=1e-3)
        assert told["beats_history"] == pytest.approx(sum(over) / len(made), abs=1e-3)
        shown = [
            speeds[row["kernel_id"]] > 1.02 * max(speeds[one] for one in row["exemplar_kernel_ids"])
            for row in made
            if row["exemplar_kernel_ids"]
        ]
        assert (told["shown"] is None) == (arm == "none") == (not shown)
        if shown:
            assert told["beats_shown"] == pytest.approx(sum(shown) / len(made), abs=1e-3)
        best: dict[tuple[str, str], float] = defaultdict(float)
        for row in made:
            key = row["namespace"], row["task_id"]
            best[key] = max(best[key], speeds[row["kernel_id"]])
        gains = [math.log(max(1, best[key] / fastest[key[1]])) for key in best]
        assert told["gain"] == pytest.approx(math.exp(sum(gains) / len(gains)), abs=1e-3)


@pytest.mark.slow
def test_tasks_that_are_solved_without_exemplars_are_told_apart(with_history: store.Lake) -> None:
    rows = ask(with_history, "solved_by_none")
    history = {row["arm"]: row for row in ask(with_history, "history")}
    # The judge of this lake finds every answer correct, so there is one group.
    assert [(row["arm"], row["by_none"], row["correct"]) for row in rows] == [
        (arm, True, 1.0) for arm in sorted(ARMS)
    ]
    for row in rows:
        for name in ("tasks", "answers", "answer", "best"):
            assert row[name] == pytest.approx(history[row["arm"]][name], abs=1e-3)


def test_arms_that_run_side_by_side_share_the_cores_and_the_judges(tmp_path: Path) -> None:
    sizes = replace(PRESETS["gpu-stage3"], model="m", seeds=1, jobs=3, workers=6)
    steps = [*ArmStudy(tmp_path, sizes, 0, 1.0, 1.0).list_steps()][-5:-1]
    assert [[step.part for step in group] for group in steps] == [
        [(0, 3), (1, 3), (2, 3)],
        [(0, 2), (1, 2)],
    ] * 2
    for name in ("none", "shuffled"):
        folder = tmp_path / f"runs/contrastive-{name}-0/final"
        folder.mkdir(parents=True)
        (folder / "config.json").touch()
        # A kill after the configuration leaves no model.
        assert not steps[0][("none", "shuffled").index(name)].holds()
        (folder / "model.safetensors").touch()
    for group, workers in ((2, "2"), (3, "3")):
        words = steps[group][-1 if group == 3 else 0].words()
        assert words[words.index("--workers") + 1] == workers


@pytest.mark.slow
def test_verdicts_in_the_spool_of_a_killed_measuring_are_not_made_again(
    empty_lake: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = str(tmp_path / "lake")
    shutil.copytree(empty_lake, url)
    task, policy, kernel = builders.task(), builders.policy(), builders.kernel()
    workload, run = builders.workload(task), builders.run(config='{"pool": {"remeasure": true}}')
    attempt = builders.generation(policy, task, kernel, namespace="arms/none/0/a", step=1)
    verdict = builders.evaluation(kernel, task, workload, DEVICE)
    final = builders.evaluation(kernel, task, workload, DEVICE, minute=1, run_id=run["run_id"])
    with store.writer(url, author="tests") as writer:
        rows = {"tasks": [task], "workloads": [workload], "kernels": [kernel], "runs": [run]}
        rows |= {"task_labels": [builders.label(task)], "devices": [DEVICE]}
        timings = builders.session(verdict, [1.0] * 7, eager=[2.0] * 7)
        rows |= {"policies": [policy], "generations": [attempt]}
        writer.append(rows | {"evaluations": [verdict], "timings": timings}, "a search")
        with writer.reader() as lake:
            best = list_unmeasured_bests(lake)
        assert [row["kernel_id"] for row in best] == [kernel["kernel_id"]]
        fault = final | {"evaluation_id": "f", "status": "evaluator_error", "reason": "internal"}
        writer.append({"evaluations": [fault]}, "the judge failed")
        with writer.reader() as lake:
            assert list_unmeasured_bests(lake) == best
        again = {
            "evaluations": [final],
            "timings": builders.session(final, [1.0] * 7, eager=[1.5] * 7),
        }
        writer.append(again, "killed before the commit", wait=False)
    monkeypatch.setattr(sys, "argv", ["remeasure", "--lake", url, "--device", "cpu"])
    remeasure.main()
    assert capsys.readouterr().out == "measured again: 0 kernels\n"
    # The session that chose the kernel does not count in the primary figure.
    with store.open(url) as lake:
        assert [row["geomean"] for row in ask(lake, "primary")] == [1.5]


@pytest.mark.slow
def test_kernels_of_a_training_are_not_measured_again(empty_lake: Path, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    shutil.copytree(empty_lake, url)
    task, policy = builders.task(), builders.policy()
    workload = builders.workload(task)
    kernels = [builders.kernel(name) for name in ("training", "answer")]
    verdicts = [builders.evaluation(kernel, task, workload, DEVICE) for kernel in kernels]
    rows = {
        "tasks": [task],
        "task_labels": [builders.label(task)],
        "workloads": [workload],
        "devices": [DEVICE],
        "policies": [policy],
        "kernels": kernels,
        "generations": [
            builders.generation(policy, task, kernel, namespace=namespace, step=1)
            for kernel, namespace in zip(
                kernels, ("stage3/bucket/0", "trained-bucket/bucket/0/a"), strict=True
            )
        ],
        "evaluations": verdicts,
        "timings": [
            row
            for verdict in verdicts
            for row in builders.session(verdict, [1.0] * 7, eager=[2.0] * 7)
        ],
    }
    with store.writer(url, author="tests") as writer:
        writer.append(rows, "stage 3")
        with writer.reader() as lake:
            best = list_unmeasured_bests(lake)
    assert [row["kernel_id"] for row in best] == [kernels[1]["kernel_id"]]


@pytest.mark.slow
def test_verdicts_on_a_teacher_bring_no_tasks_that_would_train(
    empty_lake: Path, tmp_path: Path
) -> None:
    """Such a task would have no label, so no split would keep it out of the training."""
    teacher, other = builders.kernel("teacher"), builders.kernel("other")
    trained, tested = builders.task("square"), builders.task("cube")
    pairs = [(teacher, trained), (teacher, tested), (other, trained)]
    verdicts = [
        builders.evaluation(kernel, task, builders.workload(task), DEVICE) for kernel, task in pairs
    ]
    known = {"tasks": [trained], "kernels": [teacher], "task_labels": [builders.label(trained)]}
    earlier = {
        "tasks": [trained, tested],
        "task_labels": [builders.label(trained), builders.label(tested, "level1/2")],
        "workloads": [builders.workload(task) for task in (trained, tested)],
        "kernels": [teacher, other],
        "devices": [DEVICE],
        "runs": [builders.run()],
        "evaluations": verdicts,
        "timings": [row for verdict in verdicts for row in builders.session(verdict, [1.0] * 7)],
        "policies": [builders.policy()],
        "generations": [builders.generation(builders.policy(), trained, other)],
    }
    urls = [str(tmp_path / name) for name in ("earlier", "lake")]
    for url, rows in zip(urls, (earlier, known), strict=True):
        shutil.copytree(empty_lake, url)
        with store.writer(url, author="tests") as writer:
            writer.append(rows, "a teacher and its task")
    export(urls[0], tmp_path / "tables")
    take_over(tmp_path / "tables", urls[1], "--where", "true")
    with store.open(urls[1]) as lake:
        assert lake.sql("SELECT kernel_id, task_id FROM evaluations").rows() == [
            {"kernel_id": teacher["kernel_id"], "task_id": trained["task_id"]}
        ]
        assert lake.sql("SELECT task_id FROM tasks").rows() == [{"task_id": trained["task_id"]}]
        assert lake.sql("FROM timings").arrow().num_rows == 1


@pytest.mark.slow
def test_pieces_of_an_experiment_make_one_lake(
    searched: store.Lake, lake_url: str, tmp_path: Path
) -> None:
    tables, url = tmp_path / "tables", str(tmp_path / "lake")
    export(lake_url, tables)
    line = [sys.executable, "-m", "lab.merge", url, str(tables)]
    attempts, verdicts = (
        searched.sql(f"FROM {name}").arrow().num_rows for name in ("generations", "evaluations")
    )
    for new in ((attempts, verdicts), (0, 0)):
        done = subprocess.run(line, check=True, capture_output=True, text=True)
        assert done.stdout == "{}: {} new attempts, {} new verdicts\n".format(tables, *new)
    with store.open(url) as lake:
        for name in ("primary", "isolation"):
            assert ask(lake, name) == ask(searched, name)
    assert integrity.check(Location.of(url)) == []
    done = subprocess.run([*line[:-1], str(tmp_path)], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith(f"{tmp_path} has no tables of a run")


@pytest.mark.slow
def test_a_lake_of_a_run_may_have_the_verdicts_of_one_device_alone(
    empty_lake: Path, tmp_path: Path
) -> None:
    task, policy = builders.task("square"), builders.policy()
    workload = builders.workload(task)
    kernels = [builders.kernel(name) for name in ("first", "second")]
    devices = [builders.device(name) for name in ("H100", "H200")]
    verdicts = [
        builders.evaluation(kernel, task, workload, device)
        for device, judged in zip(devices, (kernels, kernels[:1]), strict=True)
        for kernel in judged
    ]
    rows = {
        "tasks": [task],
        "task_labels": [builders.label(task)],
        "workloads": [workload],
        "devices": devices,
        "policies": [policy],
        "kernels": kernels,
        "generations": [builders.generation(policy, task, kernel) for kernel in kernels],
        "evaluations": verdicts,
        "timings": [row for verdict in verdicts for row in builders.session(verdict, [1.0] * 7)],
    }
    judged_on_both = str(shutil.copytree(empty_lake, tmp_path / "both"))
    with store.writer(judged_on_both, author="tests") as writer:
        writer.append(rows, "judged on two GPUs")
    tables, url = tmp_path / "tables", str(tmp_path / "merged")
    export(judged_on_both, tables)
    new = merge.merge(url, tables, "H200")
    assert (new["generations"], new["evaluations"]) == (len(kernels), 1)
    with store.open(url) as lake:
        judged = lake.sql("SELECT DISTINCT evaluation_id FROM timings").rows()
        assert judged == [{"evaluation_id": verdicts[-1]["evaluation_id"]}]
        assert lake.sql("SELECT evaluation_id FROM evaluations").rows() == judged
    with pytest.raises(FlywheelError, match=r"no device 'B200'\nIt has H100, H200\."):
        merge.merge(url, tables, "B200")
    with pytest.raises(FlywheelError, match=r"has verdicts of H200\nGive the path of a new lake"):
        merge.merge(url, tables, "H100")


@pytest.mark.slow
def test_no_arm_sees_the_kernels_of_an_earlier_run_whose_verdicts_are_kept(
    searched: store.Lake, lake_url: str, server: str, empty_lake: Path, tmp_path: Path
) -> None:
    tables, url = tmp_path / "tables", str(tmp_path / "lake")
    shutil.copytree(empty_lake, url)
    judged = searched.sql("FROM evaluations").arrow().num_rows
    export(lake_url, tables)
    take_over(tables, url)
    search_with_all_arms(url, server, 0)
    with store.open(url) as lake:
        isolation = ask(lake, "isolation")
        assert [row["leaked"] for row in isolation] == [0] * len(isolation)
        arms = [row for row in isolation if row["namespace"].startswith("arms/")]
        assert len(arms) == len(ARMS) - 1
        assert all(row["own"] > 0 for row in arms)
        # The same seed attempts the same kernels, and their verdicts are there.
        assert lake.sql("FROM evaluations").arrow().num_rows == judged
        # Only the best kernels of this run are measured again.
        again = list_unmeasured_bests(lake)
        own = lake.sql("SELECT kernel_id FROM generations WHERE namespace LIKE 'arms/%'").rows()
        assert again
        assert {row["kernel_id"] for row in again} <= {row["kernel_id"] for row in own}


def test_a_last_step_that_is_none_is_refused_before_any_work(tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [sys.executable, "-m", "lab.exemplar_arms", str(out)]
    done = subprocess.run([*words, "--until", "nosuch"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "--until nosuch is no step. Choose one of: import-train, import-held-out" in done.stderr
    assert not out.exists()
