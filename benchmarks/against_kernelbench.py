"""KernelBench's own check against ours: kernels per hour, and the spread of repeated speedups.

python benchmarks/against_kernelbench.py --lake DIR --kernelbench CHECKOUT --gpu H100 \
    --kernels 20 --rounds 3

DIR is a lake with imported kernels, CHECKOUT a clone of ScalingIntelligence/KernelBench. Its side
runs `eval_kernel_against_ref` with 5 correctness and 100 timing trials in a fresh process per
kernel, like its batch script. Our side is `evaluators run` with equal work: 5 calls, eager as the
only baseline, 100 blocks, no robustness calls and no profile. `--workers` judges share the GPU on
our side, and only one of them times at a moment. Rounds alternate. Both sides start without builds:
the first round includes compilation, and later rounds reuse the builds.

`--timing-method` is KernelBench's: `cuda_event`, its default, records events around a call whose
launches overlap with the flush of the cache; `host_time` times a call on an idle GPU. The program
prints how far the speedups by each of our clocks agree with it.

KernelBench's check runs kernels in a plain process without a sandbox. Run this program on a machine
that has no other data.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import store
from evaluators.timing.session import CLOCKS

THEIRS = """
import json, sys, types
for name in ("dotenv", "openai", "litellm"):  # of its prompting side, which is not called
    stub = types.ModuleType(name)
    stub.load_dotenv = stub.completion = stub.OpenAI = lambda *a, **k: None
    sys.modules.setdefault(name, stub)
checkout, folder, method = sys.argv[1:4]
sys.path.insert(0, checkout + "/src")
texts = json.load(open(folder))
import torch
from kernelbench.eval import eval_kernel_against_ref
# Only its backend "triton" imports a file, and triton.jit and torch.jit read their source from it.
backend = "triton" if ".jit" in texts["kernel"] else "cuda"
result = eval_kernel_against_ref(
    texts["task"], texts["kernel"], num_correct_trials=5, num_perf_trials=100,
    measure_performance=method != "none", timing_method=method, backend=backend,
    device=torch.device("cuda:0"),
)
told = result.metadata if result else {"compilation_error": "it asks for another attempt"}
names = ("compilation_error", "runtime_error", "correctness_issue", "max_difference")
print("RESULT " + json.dumps({
    "correct": bool(result and result.correctness),
    "ran": "compilation_error" not in told and "runtime_error" not in told,
    "why": "; ".join(f"{name}: {str(told[name])[-200:]}" for name in names if name in told),
    "speedups": {method: result.ref_runtime / result.runtime}
    if result and result.runtime > 0 and result.ref_runtime > 0 else {},
}))
"""
"""Arguments: the checkout, a file with the texts, and the timing method, or none."""
CHOSEN = """
SELECT DISTINCT kernels.kernel_id, tasks.task_id, tasks.code AS task, kernels.code AS kernel
FROM claims
JOIN kernels USING (kernel_id)
JOIN tasks ON tasks.task_id = claims.task_id
JOIN task_names ON task_names.task_id = claims.task_id
WHERE claims.gpu = $gpu AND ({where})
ORDER BY hash(kernels.kernel_id)
LIMIT $kernels
"""
FOUND = """
WITH newest AS (
    SELECT kernel_id, clock, arg_max(speedup, measured_at) AS speedup
    FROM speedups
    GROUP BY kernel_id, clock
),
by_clock AS (
    SELECT kernel_id, map_from_entries(list((clock, speedup))) AS speedups
    FROM newest
    GROUP BY kernel_id
)
SELECT kernel_id, any_value(status) AS status, any_value(reason) AS reason,
    any_value(speedups) AS speedups, any_value(parts_s) AS parts
FROM evaluations
LEFT JOIN by_clock USING (kernel_id)
WHERE kernel_id IN ({ids})
GROUP BY kernel_id
"""
"""Of several sessions of a kernel, the newest counts."""
EQUAL_WORK = (
    *("--calls", "5", "--no-robustness", "--no-diagnosis", "--baselines", "eager"),
    *("--blocks", "100", "--half-width", "0.000001", "--timing-s", "60", "--timing-limit-s", "60"),
)


def run_theirs(
    rows: list[dict[str, Any]], given: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Run their check on every kernel in turn; seconds and results."""
    begun = time.perf_counter()
    results: dict[str, Any] = {}
    for row in rows:
        results[row["kernel_id"]] = _run_their_check(row, given, folder)
        passed = time.perf_counter() - begun
        said = f"KernelBench: {len(results)} of {len(rows)} kernels, {passed:.0f} s"
        print(said, file=sys.stderr, flush=True)
    return {"seconds": time.perf_counter() - begun, "results": results}


def _run_their_check(row: dict[str, Any], given: argparse.Namespace, folder: Path) -> Any:
    file = folder / f"{row['kernel_id']}.json"
    file.write_text(json.dumps({"task": row["task"], "kernel": row["kernel"]}))
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": str(folder / "theirs" / row["kernel_id"])}
    try:
        done = subprocess.run(
            [sys.executable, "-c", THEIRS, str(given.kernelbench), str(file), given.timing_method],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=240,
        )
    except subprocess.TimeoutExpired:
        return None
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        print(f"KernelBench, kernel {row['kernel_id'][:12]}: {done.stderr[-300:]}", file=sys.stderr)
    return json.loads(lines[-1].removeprefix("RESULT ")) if lines else None


def run_ours(rows: list[dict[str, Any]], given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Judge the same kernels in a copy of the lake; seconds and results."""
    copy, cache = folder / "lake", folder / "cache"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(given.lake, copy)
    ids = ", ".join(f"'{row['kernel_id']}'" for row in rows)
    tasks = ", ".join(f"'{row['task_id']}'" for row in rows)
    where = f"kernel_id IN ({ids}) AND task_id IN ({tasks})"
    begun = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "evaluators", "run", "--on", "cuda:0"),
            *("--lake", str(copy), "--where", where, "--workers", str(given.workers), *EQUAL_WORK),
        ],
        check=True,
        env={**os.environ, "FLYWHEEL_CACHE": str(cache)},
    )
    seconds = time.perf_counter() - begun
    with store.open(str(copy)) as opened:
        found = opened.sql(FOUND.format(ids=ids)).rows()
    results = {
        row["kernel_id"]: {
            "correct": row["status"] == "correct",
            "speedups": dict(row["speedups"] or ()),
            "why": row["reason"],
            "parts": json.loads(row["parts"]),
        }
        for row in found
    }
    return {"seconds": seconds, "results": results}


Rounds = list[dict[str, Any]]
"""What one side found in each round."""


def list_speedups(rounds: Rounds, clock: str) -> dict[str, list[float]]:
    """Speedups by a clock in each round, of the kernels that have one in every round."""
    kernels = rounds[0]["results"] if rounds else ()
    found: dict[str, list[Any]] = {
        kernel: [
            ((one["results"].get(kernel) or {}).get("speedups") or {}).get(clock) for one in rounds
        ]
        for kernel in kernels
    }
    return {kernel: values for kernel, values in found.items() if all(values)}


def compute_spreads(speedups: dict[str, list[float]], among: set[str]) -> list[float]:
    """Largest over smallest speedup of each kernel over the rounds, less one, ascending."""
    return sorted(max(speedups[kernel]) / min(speedups[kernel]) - 1 for kernel in among)


def print_agreement(ours: Rounds, theirs: dict[str, list[float]]) -> None:
    """Print how far the speedups by each of our clocks are from theirs, medians over the rounds."""
    print("\n| our clock | kernels | ours / theirs, median | least | greatest | half are within |")
    print("|---|---|---|---|---|---|")
    for clock in CLOCKS["cuda"]:
        speedups = list_speedups(ours, clock)
        ratios = sorted(
            statistics.median(speedups[kernel]) / statistics.median(theirs[kernel])
            for kernel in set(speedups) & set(theirs)
        )
        if ratios:
            off = statistics.median(abs(ratio - 1) for ratio in ratios)
            print(
                f"| {clock} | {len(ratios)} | {statistics.median(ratios):.3f} | {ratios[0]:.3f} "
                f"| {ratios[-1]:.3f} | {off:.1%} |"
            )


def print_parts(ours: Rounds) -> None:
    """Print where the seconds of our verdicts go, the means of each round."""
    rounds = " | ".join(f"s, round {number + 1}" for number in range(len(ours)))
    print(f"\n| part of our verdict | {rounds} |")
    print("|---|" + "---|" * len(ours))
    parts = [[judged["parts"] for judged in one["results"].values()] for one in ours]
    for part in sorted({part for verdicts in parts for one in verdicts for part in one}):
        means = (statistics.mean(one.get(part, 0.0) for one in verdicts) for verdicts in parts)
        print(f"| {part} |", " | ".join(f"{mean:.2f}" for mean in means), "|")


def print_comparison(rounds: dict[str, Rounds], method: str) -> None:
    """Print the comparison, and the kernels that the two sides judge differently."""
    kernels = len(rounds["ours"][0]["results"])
    speedups = {
        "ours": list_speedups(rounds["ours"], CLOCKS["cuda"][0]),
        "KernelBench": list_speedups(rounds["KernelBench"], method),
    }
    common = set(speedups["ours"]) & set(speedups["KernelBench"])
    print(
        f"{kernels} kernels, {len(rounds['ours'])} rounds; "
        f"{len(common)} with a speedup in all of them"
    )
    print(
        "| side | s per kernel, with builds | without | kernels/h, with builds | without "
        "| judged correct | spread, mean | median | p90 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for side, found in rounds.items():
        cold, *warm = (one["seconds"] / kernels for one in found)
        later = statistics.mean(warm) if warm else math.nan
        right = sum(bool((one or {}).get("correct")) for one in found[0]["results"].values())
        spread = compute_spreads(speedups[side], common) or [math.nan]
        high = spread[min(len(spread) - 1, int(0.9 * len(spread)))]
        print(
            f"| {side} | {cold:.2f} | {later:.2f} | {3600 / cold:.0f} | {3600 / later:.0f} "
            f"| {right} | {statistics.mean(spread):.2%} | {statistics.median(spread):.2%} "
            f"| {high:.2%} |"
        )
    print_agreement(rounds["ours"], speedups["KernelBench"])
    print_parts(rounds["ours"])
    theirs_first, ours_first = (rounds[side][0]["results"] for side in ("KernelBench", "ours"))
    print("\n| kernel | KernelBench | ours |")
    print("|---|---|---|")
    for kernel, judged in sorted(ours_first.items()):
        there = bool((theirs_first.get(kernel) or {}).get("correct"))
        if there != judged["correct"]:
            said = ["correct" if one else "wrong" for one in (there, judged["correct"])]
            print(f"| {kernel[:12]} | {said[0]} | {judged['why'] or said[1]} |")


def main() -> None:
    """Run both sides in turn and print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", type=Path, required=True)
    parser.add_argument("--kernelbench", type=Path, required=True)
    parser.add_argument("--gpu", default="H100")
    parser.add_argument("--where", default="task_names.level <= 2", help="SQL: kernels to judge")
    parser.add_argument("--kernels", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1, help="our judges on the GPU")
    parser.add_argument(
        "--timing-method",
        choices=["cuda_event", "host_time"],
        default="cuda_event",
        help="how KernelBench times (default: %(default)s)",
    )
    parser.add_argument("--out", type=Path, help="write every result as JSON after each round")
    given = parser.parse_args()
    with store.open(str(given.lake)) as lake:
        chosen = CHOSEN.format(where=given.where)
        rows = lake.sql(chosen, {"gpu": given.gpu, "kernels": given.kernels}).rows()
    rounds: dict[str, Rounds] = {"KernelBench": [], "ours": []}
    with tempfile.TemporaryDirectory(prefix="flywheel-peer-") as name:
        folder = Path(name)
        for number in range(given.rounds):
            for side, run in (("ours", run_ours), ("KernelBench", run_theirs)):
                rounds[side].append(run(rows, given, folder))
                said = f"round {number + 1}: {side} {rounds[side][-1]['seconds']:.0f} s"
                print(said, file=sys.stderr, flush=True)
                if given.out:
                    given.out.write_text(json.dumps(rounds, indent=1))
    print_comparison(rounds, given.timing_method)


if __name__ == "__main__":
    main()
