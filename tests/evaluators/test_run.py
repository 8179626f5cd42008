"""From a lake to verdicts in it, with the real command in a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import commands
import pytest
from lake_places import LakePlaces

import store
from evaluators import judge
from evaluators.cli import app as cli
from evaluators.device.fingerprint import read_fingerprint
from evaluators.judging.case import Case
from evaluators.scheduling import run as run_module
from evaluators.scheduling.cases import read_task
from evaluators.scheduling.run import Selection, find_pending, name_verdict
from store.cli import show
from store.dossier import pages
from store.errors import FlywheelError, HostUnfit, SandboxFailed, UnknownName, UnsafeSQL

ROOT = Path(store.__file__).parents[1]
TASK = (
    "import torch\nN = 8\nclass Model(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
    "def get_inputs(): return [torch.randn(N, N)]\ndef get_init_inputs(): return []\n"
)
KERNEL = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return {}\n"
CPU = {"device_id": "c" * 64, "name": "a processor", "kind": "cpu"}
CUDA = {"device_id": "d" * 64, "name": "a GPU", "kind": "cuda"}


def kernel_rows(
    name: str, code: str, *, task_id: str, source: str = "starter", **features: Any
) -> dict[str, list[dict[str, Any]]]:
    """Rows of one kernel, its origin and its features."""
    kernel_id = store.ids.kernel_id({name: code}, name)
    return {
        "kernels": [
            {
                "kernel_id": kernel_id,
                "code": code,
                "path": name,
                "entry_point": "ModelNew",
                "source": source,
            }
        ],
        "generations": [
            {
                "generation_id": store.ids.content_id("generation", kernel_id, task_id),
                "task_id": task_id,
                "policy_id": "someone",
                "kernel_id": kernel_id,
                "source": source,
            }
        ],
        "kernel_features": [
            {
                "kernel_id": kernel_id,
                "extractor_version": 1,
                "parsed": True,
                "language": "pytorch",
                "has_device_code": False,
                "global_functions": 0,
                "triton_kernels": 0,
                "uses_cuda_graphs": False,
                "uses_torch_compile": False,
                "uses_torch_jit": False,
                "sets_cudnn_flags": False,
                "uses_streams": False,
                "techniques": [],
                "code_bytes": len(code),
                "code_lines": 3,
                "minhash_bands": [],
                **features,
            }
        ],
    }


def task_rows(code: str, name: str, suite: str = "starter") -> dict[str, list[dict[str, Any]]]:
    """Rows of one task with its two workloads."""
    code = store.ids.normalize(code)
    task_id = store.ids.task_id(code)
    settings = {"default": "{}", "cuda": '{"N": 64}'}
    return {
        "tasks": [{"task_id": task_id, "code": code, "source": suite}],
        "task_labels": [
            {
                "suite": suite,
                "suite_revision": "v1",
                "name": name,
                "task_id": task_id,
                "family": name,
                "source": suite,
            }
        ],
        "workloads": [
            {
                "workload_id": store.ids.workload_id(task_id, axes),
                "task_id": task_id,
                "name": kind,
                "axes": axes,
                "generator": "get_inputs",
            }
            for kind, axes in settings.items()
        ],
    }


@pytest.fixture(scope="module")
def prepared_url(places: LakePlaces, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a lake with two tasks of two suites and kernels of each language."""
    url = places.choose_url(tmp_path_factory.mktemp("prepared") / "lake")
    ours, theirs = task_rows(TASK, "twice"), task_rows(TASK + "# other\n", "other", "imported")
    task_id, other_id = ours["tasks"][0]["task_id"], theirs["tasks"][0]["task_id"]
    several = [
        kernel_rows("right.py", KERNEL.format("x + x"), task_id=task_id),
        kernel_rows("wrong.py", KERNEL.format("x * 3"), task_id=task_id),
        kernel_rows("host.py", "# cpp", task_id=task_id, language="cpp"),
        kernel_rows("device.py", "# cuda", task_id=task_id, language="cuda", has_device_code=True),
        kernel_rows("tiles.py", "# triton", task_id=task_id, language="triton"),
        kernel_rows("foreign.py", "# a", task_id=task_id, source="a model"),
        kernel_rows("elsewhere.py", "# b", task_id=other_id, source="imported"),
    ]
    together: dict[str, list[dict[str, Any]]] = {
        "policies": [{"policy_id": "someone", "name": "someone", "kind": "person"}]
    }
    for tables in (ours, theirs, *several):
        for table, rows in tables.items():
            together.setdefault(table, []).extend(rows)
    with store.writer(url, author="tests") as writer:
        writer.append(together, "rows")
    return url


@pytest.fixture
def lake_with_kernels(places: LakePlaces, lake_url: str, prepared_url: str) -> str:
    """Return a copy of that lake."""
    places.copy(prepared_url, lake_url)
    return lake_url


def list_pending(url: str, device: dict[str, Any], **wanted: Any) -> list[str]:
    """Return the paths of the pending kernels."""
    return [path for path, _ in list_verdicts(url, device, **wanted)]


def list_verdicts(url: str, device: dict[str, Any], **wanted: Any) -> list[tuple[str, str | None]]:
    """Return path and precision of the pending verdicts."""
    with store.open(url) as lake:
        rows = find_pending(lake, judge, [device], Selection(**wanted)).to_pylist()
    return sorted((row["path"], row["precision"]) for row in rows)


def test_only_what_the_device_can_run_is_pending(lake_with_kernels: str) -> None:
    both = ["elsewhere.py", "foreign.py", "right.py", "wrong.py"]
    assert list_pending(lake_with_kernels, CPU) == sorted([*both, "host.py"])
    assert list_pending(lake_with_kernels, CUDA) == sorted([*both, "device.py", "tiles.py"])
    assert list_pending(lake_with_kernels, CPU, suite="imported") == ["elsewhere.py"]


@pytest.mark.slow
def test_a_function_with_a_usual_name_is_pending(lake_with_kernels: str) -> None:
    with store.open(lake_with_kernels) as lake:
        task_id = store.find_task(lake, "twice")["task_id"]
    text = "def {}(x):\n    return x + x\n"
    with store.writer(lake_with_kernels, author="tests") as writer:
        for name in ("custom_kernel", "forward"):
            code = text.format(name)
            tables = kernel_rows(f"{name}.py", code, task_id=task_id)
            kernel_id = store.ids.kernel_id({f"{name}.py": code}, f"{name}.py", name)
            tables["kernels"][0]["entry_point"] = name
            for rows in tables.values():
                for row in rows:
                    row["kernel_id"] = kernel_id
            writer.append(tables, "a function")
    pending = list_pending(lake_with_kernels, CPU)
    assert "custom_kernel.py" in pending
    assert "forward.py" not in pending  # a function with an unknown way of being called


@pytest.mark.slow
def test_what_was_timed_beside_other_work_is_pending_when_asked(lake_with_kernels: str) -> None:
    with store.open(lake_with_kernels) as lake:
        kernels = find_pending(lake, judge, [CPU], Selection()).to_pylist()
    flags = {"right.py": [["contended"]], "foreign.py": [["contended"], []]}
    rows = [
        {
            **{name: kernel[name] for name in ("kernel_id", "task_id", "workload_id")},
            "evaluation_id": f"{kernel['path']}-{number}",
            "device_id": CPU["device_id"],
            "evaluator": "judge",
            "evaluator_version": judge.VERSION,
            "status": "correct",
            "flags": raised,
            "created_at": datetime.now(UTC),
        }
        for kernel in kernels
        for number, raised in enumerate(flags.get(kernel["path"], []))
    ]
    device = {**CPU, "name": "a processor", "model": "m", "created_at": datetime.now(UTC)}
    with store.writer(lake_with_kernels, author="tests") as writer:
        writer.append({"devices": [device], "evaluations": rows}, "verdicts")
    assert not {"right.py", "foreign.py"} & set(list_pending(lake_with_kernels, CPU))
    assert "right.py" in list_pending(lake_with_kernels, CPU, contended=True)
    assert "foreign.py" not in list_pending(lake_with_kernels, CPU, contended=True)


@pytest.mark.slow
def test_a_gpu_judges_again_by_another_precision(lake_with_kernels: str) -> None:
    right = Selection(where="path = 'right.py'")
    with store.open(lake_with_kernels) as lake:
        pending = {
            device["kind"]: find_pending(lake, judge, [device], right).to_pylist()
            for device in (CPU, CUDA)
        }
    rows = [
        {
            **{name: kernel[name] for name in ("kernel_id", "task_id", "workload_id")},
            "evaluation_id": f"on {device['kind']}",
            "device_id": device["device_id"],
            "evaluator": "judge",
            "evaluator_version": judge.VERSION,
            "precision": "fp32_strict custom_required",
            "status": "correct",
            "created_at": datetime.now(UTC),
        }
        for device in (CPU, CUDA)
        for kernel in pending[device["kind"]]
    ]
    about = {"name": "a device", "model": "m", "created_at": datetime.now(UTC)}
    with store.writer(lake_with_kernels, author="tests") as writer:
        writer.append({"devices": [CPU | about, CUDA | about], "evaluations": rows}, "verdicts")
    default, strict = "torch_default", "fp32_strict"
    for device, precisions, pending_by in (
        (CPU, [default], []),
        (CPU, [default, strict], []),
        (CUDA, [default], [default]),
        (CUDA, [strict], []),
        (CUDA, [None], []),
        (CUDA, [strict, "allow_tf32", default], ["allow_tf32", default]),
    ):
        found = list_verdicts(lake_with_kernels, device, precisions=precisions)
        of_right = [precision for path, precision in found if path == "right.py"]
        assert of_right == pending_by, (device, precisions)
        # A kernel without any verdict lacks one by every precision, which differ on a GPU alone.
        of_foreign = [precision for path, precision in found if path == "foreign.py"]
        assert of_foreign == sorted(precisions[: None if device is CUDA else 1], key=str)


@pytest.mark.slow
def test_a_verdict_on_an_alike_device_of_another_host_counts(lake_with_kernels: str) -> None:
    about = {"model": "m", "driver": "1", "torch": "2", "created_at": datetime.now(UTC)}
    judged = CUDA | about | {"gpu_uuid": "one", "host": "here"}
    alike = judged | {"device_id": "e" * 64, "gpu_uuid": "another", "host": "elsewhere"}
    updated = alike | {"device_id": "f" * 64, "driver": "2"}
    with store.open(lake_with_kernels) as lake:
        kernels = find_pending(lake, judge, [judged], Selection()).to_pylist()
    rows = [
        {
            **{name: kernel[name] for name in ("kernel_id", "task_id", "workload_id")},
            "evaluation_id": kernel["kernel_id"],
            "device_id": judged["device_id"],
            "evaluator": "judge",
            "evaluator_version": judge.VERSION,
            "status": "correct",
            "created_at": datetime.now(UTC),
        }
        for kernel in kernels
    ]
    with store.writer(lake_with_kernels, author="tests") as writer:
        writer.append({"devices": [judged], "evaluations": rows}, "verdicts")
    assert not list_pending(lake_with_kernels, alike)
    assert len(list_pending(lake_with_kernels, updated)) == len(kernels)
    names = {name_verdict(judge, device, Case.read(kernels[0])) for device in (judged, alike)}
    assert len(names) == 1
    assert name_verdict(judge, updated, Case.read(kernels[0])) not in names


@pytest.mark.slow
def test_texts_beside_a_release_come_after_the_kernels_of_their_task(
    lake_with_kernels: str,
) -> None:
    with store.open(lake_with_kernels) as lake:
        [task_id] = {row["task_id"] for row in lake.sql("FROM generations").rows()[:1]}
    rows = kernel_rows("graph.py", "# a graph", task_id=task_id)
    kernel_id = store.ids.kernel_id({"graph.py": "# a graph"}, "graph.py", entry_point="Model")
    own = {"kernel_id": kernel_id, "entry_point": "Model"}
    text = {
        "task_id": task_id,
        "gpu": "H100",
        "arm": "cuda_graph",
        "kernel_id": kernel_id,
        "source": "starter",
        "source_revision": "v1",
    }
    tables = {
        "kernels": [rows["kernels"][0] | own],
        "kernel_features": [rows["kernel_features"][0] | {"kernel_id": kernel_id}],
        "released_code": [text],
    }
    with store.writer(lake_with_kernels, author="tests") as writer:
        writer.append(tables, "a release")
    with store.open(lake_with_kernels) as lake:
        pending = find_pending(lake, judge, [CUDA], Selection()).to_pylist()
    paths = [row["path"] for row in pending if row["task_id"] == task_id]
    assert len(paths) > 1
    assert paths[-1] == "graph.py"
    assert paths.count("graph.py") == 1


@pytest.mark.slow
def test_a_device_that_is_not_there_is_refused_in_two_lines(
    lake_with_kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    words = ["evaluators", "run", "--lake", lake_with_kernels, "--on", "cuda"]
    done = commands.run(words, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: no CUDA device is visible to torch")
    assert len(done.stderr.splitlines()) == 2


def test_the_workload_is_the_devices_own(lake_with_kernels: str) -> None:
    with store.open(lake_with_kernels) as lake:
        axes = {
            device["kind"]: set(
                find_pending(lake, judge, [device], Selection())["axes"].to_pylist()
            )
            for device in (CPU, CUDA)
        }
    assert axes == {"cpu": {"{}"}, "cuda": {'{"N": 64}'}}


@pytest.mark.slow
def test_options_narrow_what_is_pending(lake_with_kernels: str) -> None:
    assert list_pending(lake_with_kernels, CPU, where="path LIKE 'r%'") == ["right.py"]
    assert len(list_pending(lake_with_kernels, CPU, limit=2)) == 2
    right = store.ids.kernel_id({"right.py": KERNEL.format("x + x")}, "right.py")
    assert list_pending(lake_with_kernels, CPU, kernel=right[:16]) == ["right.py"]
    both = {"kernel": right[:16], "where": "path LIKE 'w%'"}
    assert list_pending(lake_with_kernels, CPU, **both) == []
    with store.open(lake_with_kernels) as lake:
        every, first = (
            find_pending(lake, judge, [CPU], selection)["path"].to_pylist()
            for selection in (Selection(), Selection(where="true", limit=3))
        )
    assert first == every[:3]


@pytest.mark.parametrize(
    "where",
    [
        "path IN (SELECT content FROM read_text('/etc/passwd'))",
        "true); SELECT (1",
        "true) UNION ALL (SELECT * FROM read_csv('/etc/passwd')",
    ],
)
def test_sql_of_the_user_is_guarded(lake_with_kernels: str, where: str) -> None:
    with pytest.raises(UnsafeSQL):
        list_pending(lake_with_kernels, CPU, where=where)


@pytest.mark.parametrize("where", ["path =", "no_column = 1", ""])
def test_an_error_in_a_condition_shows_the_condition_and_not_our_query(
    lake_with_kernels: str, where: str
) -> None:
    with pytest.raises(FlywheelError, match=rf"^--where '{where}' is no condition") as caught:
        list_pending(lake_with_kernels, CPU, where=where)
    assert "LINE" not in caught.value.message


def test_unknown_names_are_refused_with_what_there_is(lake_with_kernels: str) -> None:
    with pytest.raises(UnknownName, match="imported"):
        list_pending(lake_with_kernels, CPU, suite="importd")
    with pytest.raises(UnknownName):
        list_pending(lake_with_kernels, CPU, kernel="nothing")
    with pytest.raises(UnknownName, match="twice"):
        read_task("twise", lake_with_kernels)
    for name in ("other", "imported/other"):
        assert read_task(name, lake_with_kernels).code.endswith("# other\n")


def evaluators(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return commands.run(["evaluators", *arguments], cwd=ROOT)


def test_a_run_stores_verdicts_and_raw_samples_and_leaves_nothing_pending(
    lake_with_kernels: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--on", "cpu", "--lake", lake_with_kernels, "--timing-s", "0.1"]
    options += ["--timing-limit-s", "1"]
    options += [
        "--precision",
        "torch_default",
        "--precision",
        "fp32_strict",
    ]  # alike on a processor
    options += ["--calls", "5", "--no-robustness", "--draw-shapes", "1", "--call-s", "60"]
    done = evaluators("run", *options, "--where", "path IN ('right.py', 'wrong.py')")
    assert done.returncode == 0, done.stderr
    with store.open(lake_with_kernels) as lake:
        stored = {
            name: lake.sql(f"SELECT count(*) AS n FROM {name}").rows()[0]["n"]
            for name in ("evaluations", "timings")
        }
        assert stored["evaluations"] == 3
        counts = f"evaluations +2, at other shapes +1, timings +{stored['timings']}"
        assert done.stdout == f"{counts} → snapshot {lake.snapshot}\n"
        verdicts = lake.sql(
            "SELECT path, protocol, status, reason, workloads.name = 'default' AS by_default "
            "FROM evaluations "
            "JOIN kernels USING (kernel_id) JOIN workloads USING (workload_id) ORDER BY ALL"
        ).rows()
        assert [tuple(verdict.values()) for verdict in verdicts] == [
            ("right.py", "full", "correct", None, True),
            ("right.py", "shape", "correct", None, False),
            ("wrong.py", "full", "incorrect", "incorrect_numerical", True),
        ]
        # A quiet host adds the speed there: "1 of 1, worst 1.80x".
        first = "split_part(shapes, ',', 1) AS shapes"
        assert lake.sql(f"SELECT tried, holds, {first} FROM shapes").rows() == [
            {"tried": 1, "holds": True, "shapes": "1 of 1"}
        ]
        # On a busy host a session may be too short to rank, or look like a surprising win and be
        # timed once more.
        timed = lake.sql("SELECT DISTINCT path, clock FROM timings JOIN kernels USING (kernel_id)")
        assert sorted(row["path"] for row in timed.rows()) == ["right.py", "right.py"]
        sessions = lake.sql(
            "SELECT list(arm ORDER BY arm) AS arms, list(DISTINCT len(samples_ms)) AS samples "
            "FROM timings WHERE clock = 'throughput' GROUP BY session_id"
        ).rows()
        for session in sessions:
            assert session["arms"] == ["eager", "kernel"]
            assert len(session["samples"]) == 1
            assert session["samples"][0] > 0
        [run] = lake.sql("SELECT kind, name, config, snapshot_id FROM runs").rows()
        assert (run["kind"], run["name"]) == ("evaluation", "judge")
        assert json.loads(run["config"])["evaluator"]["timing_s"] == 0.1
        assert run["snapshot_id"] < lake.snapshot
        [why] = lake.sql("SELECT kernel_id, kind, bottleneck, body FROM analyses").rows()
        assert why["kind"] == "profiler"
        assert "aten::add" in why["body"]
        page = pages.read_kernel_page(lake, why["kernel_id"])
        assert page.sections["Analyses"]["bottleneck"].to_pylist() == [why["bottleneck"]]
        show.print_page(page, "table")
        assert f"Bottleneck: {why['bottleneck']}." in capsys.readouterr().out
        [device] = lake.sql("FROM devices").rows()
    assert list_pending(lake_with_kernels, device, where="path IN ('right.py', 'wrong.py')") == []


@pytest.mark.slow
def test_a_run_stores_what_a_kernel_does_at_another_shape(lake_with_kernels: str) -> None:
    options = ["--on", "cpu", "--lake", lake_with_kernels, "--protocol", "training"]
    done = evaluators("run", *options, "--where", "path = 'right.py'")
    assert done.returncode == 0, done.stderr
    with store.open(lake_with_kernels) as lake:
        own, at_shape = lake.sql(
            "SELECT protocol, status, log, axes FROM evaluations JOIN workloads USING (workload_id)"
            " ORDER BY protocol = 'shape'"
        ).rows()
        assert (own["protocol"], own["axes"]) == ("training", "{}")
        assert (at_shape["protocol"], at_shape["status"]) == ("shape", "correct")
        [row] = lake.sql("SELECT tried, holds, shapes FROM shapes").rows()
        assert row == {"tried": 1, "holds": True, "shapes": "1 of 1"}
    assert "evaluations +1, at other shapes +1" in done.stdout


@pytest.mark.slow
def test_a_run_ends_when_nothing_is_left(lake_with_kernels: str) -> None:
    options = ["--on", "cpu", "--lake", lake_with_kernels, "--where", "path = 'wrong.py'"]
    assert evaluators("run", *options).stdout.startswith("evaluations +1, ")
    again = evaluators("run", *options)
    assert again.returncode == 0, again.stderr
    assert again.stdout.startswith("0 pending on ")


STARTS = (
    "import sys\nfrom evaluators.cli import app\n"
    "def tell(event, args):\n"
    "    if event == 'subprocess.Popen' and args[1][0] == sys.executable:\n"
    "        print('a judge starts', flush=True)\n"
    "sys.addaudithook(tell)\n"
    "for words in (['imported'], ['starter', '--dry-run'], ['starter']):\n"
    "    sys.argv[1:] = [*COMMAND, *words]\n"
    "    try:\n        app.main()\n    except SystemExit as end:\n        assert not end.code\n"
)
"""Runs `evaluators` three times, and says when it starts a judge."""


@pytest.mark.slow
def test_no_judge_is_started_where_nothing_is_pending(lake_with_kernels: str) -> None:
    device = read_fingerprint("cpu")
    with store.open(lake_with_kernels) as lake:
        kernels = find_pending(lake, judge, [device], Selection(suite="imported")).to_pylist()
    rows = [
        {
            **{name: kernel[name] for name in ("kernel_id", "task_id", "workload_id")},
            "evaluation_id": kernel["kernel_id"],
            "device_id": device["device_id"],
            "evaluator": "judge",
            "evaluator_version": judge.VERSION,
            "status": "correct",
            "created_at": datetime.now(UTC),
        }
        for kernel in kernels
    ]
    tables = {"devices": [device], "evaluations": rows}
    with store.writer(lake_with_kernels, author="tests") as writer:
        writer.append(tables, "verdicts")
    words = ["run", "--on", "cpu", "--lake", lake_with_kernels, "--suite"]
    command = [sys.executable, "-c", STARTS.replace("COMMAND", repr(words))]
    with store.open(lake_with_kernels) as lake:
        snapshot = lake.snapshot
    name = device["name"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert [running.stdout.readline() for _ in range(2)] == [
            f"0 pending on {name} at snapshot {snapshot}\n",
            f"would judge 4 kernels on {name} at snapshot {snapshot}\n",
        ]
        assert running.stdout.readline() == "a judge starts\n"
        running.send_signal(signal.SIGINT)


class Absent:
    """A judge whose process is lost at every case."""

    row: ClassVar[dict[str, Any]] = {**CPU, "name": "absent", "model": "absent", "host": None}

    def judge(self, case: Case) -> NoReturn:
        raise SandboxFailed("the judge process is gone")

    def restart(self) -> None: ...


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("every_s", "seen"), [(0.0, [1, 2, 3]), (3600.0, [0, 0, 0])])
def test_others_see_the_rows_of_a_long_run_before_its_end(
    lake_with_kernels: str, monkeypatch: pytest.MonkeyPatch, every_s: float, seen: list[int]
) -> None:
    monkeypatch.setattr(run_module, "COMMIT_EVERY_S", every_s)
    stored: list[int] = []

    def progress(done: int, of: int, what: str) -> None:
        with store.open(lake_with_kernels) as lake:
            stored.append(lake.sql("SELECT count(*) AS n FROM evaluations").rows()[0]["n"])

    wanted = Selection(suite="starter", where="path <> 'foreign.py'")
    tally = run_module.run(
        lake_with_kernels, judge, [Absent()], [], judge.Config(), wanted, progress
    )  # fmt: skip
    assert (stored, tally.evaluations) == (seen, 3)
    progress(3, 3, "")
    assert stored[-1] == 3


class Unfit(Absent):
    """A judge on a host that lacks a compiler."""

    def judge(self, case: Case) -> NoReturn:
        raise HostUnfit("the kernel builds C++, and there is no compiler", "Install one.")


@pytest.mark.slow
def test_kernels_that_the_host_cannot_judge_stay_pending_without_a_row(
    lake_with_kernels: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = Selection(suite="starter", where="path <> 'foreign.py'")
    pending = list_pending(lake_with_kernels, Unfit.row, suite="starter")
    for _ in range(2):  # none is leased after the first run
        tally = run_module.run(
            lake_with_kernels, judge, [Unfit()], [], judge.Config(), wanted, lambda *_: None
        )
        assert (tally.evaluations, list(tally.unfit.values())) == (0, [3])
    assert caplog.text.count("there is no compiler") == 2  # once a run
    cli.print_tally(tally, "CPU")
    said = capsys.readouterr()
    assert "3 kernels stay pending: the kernel builds C++" in said.err
    assert said.out.startswith("evaluations +0")
    assert list_pending(lake_with_kernels, Unfit.row, suite="starter") == pending
    with store.open(lake_with_kernels) as lake:
        assert lake.sql("FROM evaluations").rows() == []


@pytest.mark.slow
def test_check_judges_a_file_and_stores_nothing(lake_with_kernels: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(KERNEL.format("x * 2.5"))
    before = store.open(lake_with_kernels).snapshot
    options = ["--task", "twice", "--on", "cpu", "--lake", lake_with_kernels]
    done = evaluators("check", str(file), *options, "--format", "json")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["evaluations"][0]["reason"] == "incorrect_numerical"
    assert store.open(lake_with_kernels).snapshot == before


def test_a_lake_or_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    missing = evaluators("run", "--lake", str(tmp_path / "none"), "--on", "cpu")
    assert missing.returncode == 1
    assert "none" in missing.stderr
    assert "Traceback" not in missing.stderr
    strange = evaluators("run", "--lake", str(tmp_path / "none"), "--on", "tpu")
    assert (strange.returncode, "tpu" in strange.stderr) == (1, True)


@pytest.mark.slow
def test_help_and_list_load_no_torch() -> None:
    code = (
        "import sys\nfrom evaluators.cli import app\n"
        "for words in (['--help'], ['run', '--help'], ['list']):\n"
        "    sys.argv = ['evaluators', *words]\n"
        "    try:\n        app.main()\n    except SystemExit as end:\n        assert not end.code\n"
        "    assert 'torch' not in sys.modules, words\n"
        "    print('END OF', *words)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = done.stdout.lower().split("end of")[:3]
    assert ["judge" in page for page in pages] == [True] * 3


def test_a_run_says_how_many_kernels_do_not_rank(capsys: pytest.CaptureFixture[str]) -> None:
    tally = run_module.Tally()
    for disturbed in ([True, True], [True, False], []):
        rows = {
            "evaluations": [{"status": "correct"}],
            "timings": [{"arm": "eager", "noisy": True, "disturbed": value} for value in disturbed],
        }
        tally.count(rows)
    cli.print_tally(tally, "CPU")
    assert "1 kernel does not rank by any clock" in capsys.readouterr().err


def test_a_run_says_once_that_many_kernels_were_judged_again_alone(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    tally = run_module.Tally()

    def count(number: int, **parts_s: float) -> None:
        row = {"status": "correct", "parts_s": json.dumps({"verdict": 1.0, **parts_s})}
        for _ in range(number):
            tally.count({"evaluations": [row], "timings": []})

    count(2, shortage=4.5)
    assert not caplog.records  # two may be chance
    count(9)
    count(2, shortage=4.5)
    [record] = caplog.records
    assert "3 of 12 kernels lacked memory" in record.getMessage()
    cli.print_tally(tally, "CPU")
    assert "4 of 13 kernels lacked memory" in capsys.readouterr().err
    count(40)
    cli.print_tally(tally, "CPU")
    assert "lacked memory" not in capsys.readouterr().err
