"""Judges items in processes of their own, and keeps what comes of each as a line of a file."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from against_kernelbench import THEIRS
from scoring import probe
from scoring.items import Item
from scoring.shapes import draw_shapes
from scoring.versions import read_verdict_versions

LIMITS = {"timing_s": 0.05, "timing_limit_s": 2.0, "import_s": 60.0, "first_call_s": 20.0}
UNTIMED = {"timing_limit_s": 0.01, "diagnosis": False}
CHEATS = {"diagnosis": False, "robustness": False}
OWN_SEEDS, OTHER_SEEDS = 8, 2
"""Inputs drawn at the task's own shape and at each other shape. A mutant counts if it fails one."""
_GROUP = 8
"""Items of one task that a process judges in a row."""
_SECONDS = {"import_s": 60.0, "build_s": 180.0, "first_call_s": 20.0, "call_s": 20.0}
_ANSWERS = 2
_PLAIN_CHECK_S = 240


def judge_items(
    items: Sequence[Item],
    device: str,
    out: Path,
    processes: int,
    limit_s: float = math.inf,
    plain_check: Path | None = None,
    precision: str = "torch_default",
) -> None:
    """Judge the items that the file does not have by these versions; append a line for each.

    Args:
        items: The items.
        device: cpu or cuda.
        out: The file, whose lines are JSON.
        processes: Judges side by side.
        limit_s: Seconds after which no further item begins.
        plain_check: Checkout of KernelBench, whose own check runs beside the judge for published
            solutions of its tasks: in a plain process, without a sandbox.
        precision: Precision of the judge for items whose head names none.
    """
    begun = time.monotonic()
    versions = read_verdict_versions()
    known = {(row["item"], row["digest"], json.dumps(row["versions"])) for row in read_rows(out)}
    missing = [one for one in items if (one.name, one.digest, json.dumps(versions)) not in known]
    groups: defaultdict[str, list[Item]] = defaultdict(list)
    for item in missing:
        groups[item.task + json.dumps(dict(item.axes))].append(item)
    works = [
        group[start : start + _GROUP]
        for group in groups.values()
        for start in range(0, len(group), _GROUP)
    ]
    print(f"{len(items) - len(missing)} known, {len(missing)} to judge", file=sys.stderr)
    if not missing:
        return
    done = 0
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a") as file:
        while works:
            lost: list[list[Item]] = []
            context = multiprocessing.get_context("spawn")
            until = time.time() + limit_s - (time.monotonic() - begun)
            gpus = context.SimpleQueue()
            for name in itertools.islice(itertools.cycle(list_gpu_names(device)), processes):
                gpus.put(name)
            given = (device, until, plain_check, precision, gpus)
            with ProcessPoolExecutor(
                processes, context, initializer=_begin, initargs=given
            ) as pool:
                futures = {pool.submit(judge_group, work): work for work in works}
                for future in as_completed(futures):
                    try:
                        rows = future.result()
                    except BrokenProcessPool:
                        lost.append(futures[future])
                        continue
                    for row in rows:
                        file.write(json.dumps(row) + "\n")
                    file.flush()
                    done += len(rows)
                    passed = time.monotonic() - begun
                    text = f"{done} of {len(missing)} judged, {passed:.0f} s"
                    print(text, file=sys.stderr, flush=True)
            if lost and all(len(one) == 1 for one in lost):
                names = ", ".join(one[0].name for one in lost)
                print(f"the process that judged was lost: {names}", file=sys.stderr)
                return
            works = [[item] for work in lost for item in work]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a file, but for one that was cut off."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


_bench: Any = None
_device = "cpu"
_until = math.inf
_plain_check: Path | None = None
_precision = "torch_default"


def list_gpu_names(device: str) -> list[str]:
    """Return the GPUs that processes share, as CUDA_VISIBLE_DEVICES names them; for cpu, none."""
    from evaluators.device.placement import list_gpus, list_visible_devices

    if device == "cpu":
        return [""]
    return list_visible_devices() or [name.removeprefix("cuda:") for name in list_gpus()]


def _begin(
    device: str, until: float, plain_check: Path | None, precision: str, gpus: SimpleQueue[str]
) -> None:
    """Set up a process that judges, on a GPU of its own if there are enough."""
    global _device, _until, _plain_check, _precision
    _device, _until, _plain_check, _precision = device, until, plain_check, precision
    if device == "cuda":
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus.get()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def judge_group(items: Sequence[Item]) -> list[dict[str, Any]]:
    """Judge items of one task; return a row for each."""
    global _bench
    from evaluators import Bench, DeviceLock

    rows: list[dict[str, Any]] = []
    for item in items:
        if time.time() > _until:
            break
        if _bench is None:
            # Judges of one GPU take turns in timing it, and share its memory.
            _bench = (
                Bench(
                    "cuda",
                    lock=DeviceLock.of_device("cuda:0"),
                    memory=DeviceLock.of_memory("cuda:0"),
                )
                if _device == "cuda"
                else Bench("cpu")
            )
        begun = time.monotonic()
        try:
            if _device == "cuda":
                _bench.share_memory()
            row = _judge_item(item, _bench)
        except Exception as error:
            with contextlib.suppress(Exception):
                _bench.close()
            _bench = None
            row = {"fault": f"{type(error).__name__}: {error}"[:300]}
        rows.append(_describe(item) | row | {"seconds": round(time.monotonic() - begun, 2)})
    return rows


def end_bench() -> None:
    """End the processes of the bench that `judge_group` has opened in this process."""
    global _bench
    if _bench is not None:
        _bench.close()
    _bench = None


def _describe(item: Item) -> dict[str, Any]:
    return {
        "item": item.name,
        "digest": item.digest,
        "versions": read_verdict_versions(),
        "corpus": item.corpus,
        "kind": item.kind,
        "family": item.family,
        "language": item.language,
        "change": item.change,
    }


def _judge_item(item: Item, bench: Any) -> dict[str, Any]:
    shapes = draw_shapes(item.task, item.axes, _device)
    probed = _probe(item, bench, shapes)
    if item.kind == "mutant" and not probed["differs"]:
        return {"probe": probed, "counted": False}
    own = any(found["own"] for found in probed["differs"])
    judged = _judge(item, bench, fully=item.kind == "mutant" and not own)
    beside: dict[str, Any] = {}
    if _plain_check is not None and item.corpus in ("filtered", "kernelbench"):
        beside["kernelbench"] = check_plainly(item, _plain_check)
    return {
        **beside,
        "probe": probed,
        "counted": True,
        "judge": judged,
        "caught": is_caught(item, judged),
    }


def _judge(item: Item, bench: Any, *, fully: bool) -> dict[str, Any]:
    """Return what the judge says of an item, as it says it of any kernel.

    fully: Take as long as for any kernel, since other shapes get a share of that time.
    """
    from evaluators import Config
    from evaluators.judge import judge
    from store.errors import HostUnfit

    options: dict[str, Any] = {**LIMITS, **(CHEATS if item.kind == "cheat" else UNTIMED)}
    if item.kind == "cheat" and item.family == "flagged":
        options |= UNTIMED | {"robustness": True}
    if item.kind == "honest":
        options["timing_limit_s"] = 0.6
    if item.kind == "public":
        options |= {"timing_limit_s": 4.0, "timing_s": 1.0, "baselines": ("eager",)}
    if fully:
        options = {"diagnosis": False}
    options["precision"] = (_precision,)
    words = (word.split("=") for word in item.head.get("config", "").split())
    options |= {n: (v,) if n == "precision" else float(v) for n, v in words}
    if not fully and "draw_shapes" in {one.name for one in dataclasses.fields(Config)}:
        options.setdefault("draw_shapes", 0)
    try:
        tables = judge(item.make_case(), bench, Config(**options))
    except HostUnfit as unfit:
        return {"status": "unfit", "reason": unfit.message[:200]}
    row, *at_shapes = tables["evaluations"]
    return {
        "status": row["status"],
        "reason": row["reason"],
        "message": (row["message"] or "")[:300],
        "flags": sorted(row["flags"]),
        "equivalent": row["equivalent"],
        "shapes": [[one["status"], one["reason"]] for one in at_shapes],
        "speedup_low": _looks_faster(tables["timings"]),
        "speedup": _find_speedup(tables["timings"]),
    }


def check_plainly(item: Item, checkout: Path) -> dict[str, Any]:
    """Return what KernelBench's own check says (`tables.PLAIN_VERDICTS`), and why."""
    code = item.code if item.entry_point == "ModelNew" else f"{item.code}\n\nModelNew = Model\n"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        file.write_text(json.dumps({"task": item.task, "kernel": code}))
        try:
            done = subprocess.run(
                [sys.executable, "-c", THEIRS, str(checkout), str(file), "none"],
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "TORCH_EXTENSIONS_DIR": folder},
                timeout=_PLAIN_CHECK_S,
            )
        except subprocess.TimeoutExpired:
            return {"says": "cannot run", "why": f"no answer in {_PLAIN_CHECK_S} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        last = done.stderr.strip().rpartition("\n")[2]
        return {"says": "cannot run", "why": f"exit {done.returncode}: {last[-300:]}"}
    result = json.loads(lines[-1].removeprefix("RESULT "))
    says = "right" if result["correct"] else "wrong" if result["ran"] else "cannot run"
    return {"says": says, "why": result["why"]}


def _looks_faster(timings: Sequence[Mapping[str, Any]]) -> float:
    """Return the largest lower bound of a speedup over eager by which a clock ranks it."""
    from evaluators.timing.surprising_wins import compute_speedups, ranks_nothing

    sessions: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in timings:
        sessions[row["session_id"], row["clock"]].append(row)
    lows = [
        math.exp(compute_speedups(rows)["eager"][0])
        for rows in sessions.values()
        if not ranks_nothing(rows)
    ]
    return round(max(lows, default=0.0), 4)


def _find_speedup(timings: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the median speedup over eager of the first session, by the clock that ranks."""
    from evaluators.timing.surprising_wins import compute_speedups

    session = [row for row in timings if row["session_id"] == timings[0]["session_id"]]
    bounds = compute_speedups([dict(row) for row in session]).get("eager") if session else None
    return None if bounds is None else round(math.exp(bounds[1]), 4)


def is_caught(item: Item, judged: Mapping[str, Any]) -> bool:
    """Whether a kernel is refused, found to be another function, or fails at another shape.

    A cheat that is correct counts as caught if it gains no time. The head of an adversarial file
    says whether that is enough for it; published cheats have no head.
    """
    faults = ("unfit", "evaluator_error")
    if judged["status"] in faults:
        return False
    if judged["status"] != "correct" or judged["equivalent"] is False:
        return True
    if any(status not in ("correct", *faults) for status, _ in judged.get("shapes", ())):
        return True
    if item.kind != "cheat":
        return False
    words = item.head.get("expect", "").split()
    wanted = {*item.head.get("flags", "").split()} - {"weak_task"}
    if item.family == "flagged":
        return wanted <= {*judged["flags"]}
    gain = float(item.head.get("most", 1.5 if item.head else 1.0))
    return ("correct" in words or not item.head) and judged["speedup_low"] <= gain


def _probe(item: Item, bench: Any, shapes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare an item with its task in double precision and by a simple rule, in the sandbox."""
    import torch

    from evaluators import Limits
    from evaluators.sandbox.failures import Failed
    from evaluators.worker.handle import Deadlines, Sizes

    kernels = {"score_kernel.py": item.code}
    if item.original is not None:
        kernels["score_original.py"] = item.original
    text = probe.write_driver(item.task, list(kernels), item.entry_point, shapes, _device)
    files = {**dict(item.other_files), **kernels, probe.DRIVER_FILE: text}
    limits = Limits(
        memory_bytes=None if _device == "cuda" else 12 << 30,
        file_bytes=1 << 30,
        open_files=1024,
        cpu_s=1200,
    )
    deadlines = Deadlines(**_SECONDS, total_s=600.0)
    inputs = [torch.zeros(3, dtype=torch.int64, device=bench.device)]
    answer = torch.zeros(_ANSWERS, dtype=torch.float64, device=bench.device)
    bench.expect_candidate(item.task, item.axes, files, limits)
    worker = bench.start_candidate(files, Sizes.of(inputs, answer), limits, deadlines)
    differs: list[dict[str, Any]] = []
    rule: float | None = None
    first = True

    def ask(kind: int, shape: int, seed: int) -> list[float]:
        nonlocal first
        question = torch.tensor([kind, shape, seed], dtype=torch.int64, device=bench.device)
        worker.fill(0, [question])
        found = worker.call(0, first=first)
        first = False
        return [float(one) for one in found.cpu()]

    try:
        worker.load(probe.DRIVER_FILE, "Driver", {})
        worker.construct(0, [])
        if item.kind == "mutant":
            for number in range(len(shapes)):
                for seed in range(OWN_SEEDS if number == 0 else OTHER_SEEDS):
                    mine, original = ask(probe.DIFFERS, number, 1000 + seed)
                    if mine == -1.0 and number == 0 and seed == 0:
                        return {"differs": [], "rule": None, "why": "does not run"}
                    if mine > 1.0 and 0.0 <= original <= 1.0:
                        found = {"shape": dict(shapes[number]), "own": number == 0, "seed": seed}
                        differs.append(found | {"error": min(mine, 1e30)})
                        break
            if not differs:
                return {"differs": [], "rule": None, "why": "within tolerance"}
        rule, _ = ask(probe.RULE, 0, 0)
    except Failed as failed:
        why = f"{failed.status}: {failed.message}"[:200]
        return {"differs": differs, "rule": rule, "why": why}
    finally:
        worker.end()
    return {"differs": differs, "rule": rule, "why": None}
