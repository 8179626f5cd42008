"""Judges honest kernels again and again, and lists those whose verdict or flags change.

    python benchmarks/verdict_stability.py --out stability.jsonl [--seeds 20] [--processes 16]
        [--device cpu] [--only NAME …] [--timed 10]

The kernels are the honest ones of the starter suite and of tests/evaluators/adversarial. Each run
makes the correctness and robustness calls of the full protocol on new secret seeds, without timing.
The kernels of `--timed` are judged as a whole as often, to see whether `timer_mismatch` or
`memorised_output` is said of one of them; flags that tell of times are left out there. A run that
the file already has is not repeated, so a run that was stopped is resumed. Exits with 1 if anything
changes.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scoring.items import list_honest

from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.judging.case_result import CaseResult

CALLS = 22
OF_TIMES = {
    "baseline_drift",
    "below_resolution",
    "confirmed_win",
    "contended",
    "fewer_baselines",
    "more_threads",
    "near_roofline",
    "no_custom_kernel",
    "not_frozen",
    "shares_device",
    "timed_end_to_end",
    "unconfirmed_win",
}
"""Flags that depend on the load of the host."""


def judge_calls(case: Case, bench: Bench) -> dict[str, Any]:
    """Make the calls of the full protocol without timing; returns what they say."""
    from evaluators.judging.bench import BaselineTask
    from evaluators.judging.calls import CorrectnessProtocol, draw_probe
    from evaluators.references.imported_file import WEIGHT_SEED
    from evaluators.references.task import ReferenceFailed
    from evaluators.sandbox.failures import Failed
    from evaluators.sandbox.launcher import Limits
    from evaluators.worker.handle import Deadlines, Sizes

    limits = Limits(
        memory_bytes=None if bench.device == "cuda" else 16 << 30,
        file_bytes=1 << 30,
        open_files=1024,
        cpu_s=10**5,
    )
    deadlines = Deadlines(
        import_s=600.0, build_s=600.0, first_call_s=600.0, call_s=120.0, total_s=3600.0
    )
    evidence, axes = CaseResult(), json.loads(case.axes)
    files = case.files
    reference = bench.open_reference(case.task_code, axes)
    reference.reset()
    bench.expect_candidate(case.task_code, axes, files, limits)
    first = draw_probe(reference, evidence)
    sizes = Sizes.of(first.inputs, first.expected.value)
    worker = bench.start_candidate(files, sizes, limits, deadlines)
    status, reason, message = "correct", None, ""
    try:
        protocol = CorrectnessProtocol(worker, reference, evidence, "torch_default")
        worker.load("kernel.py", "ModelNew", {})
        protocol.adopt_weights(worker.construct(WEIGHT_SEED, reference.arguments))
        protocol.make_verdict_calls(first, CALLS)
        task = BaselineTask(case.task_code, axes, sizes, deadlines)
        probe = bench.start_baselines(task).main if bench.device == "cuda" else worker
        protocol.make_robustness_calls(probe)
    except Failed as failed:
        status, reason, message = failed.status, failed.reason, failed.message
    except ReferenceFailed as failed:
        status, reason, message = "evaluator_error", "reference_failed", str(failed)
    finally:
        worker.end()
    return {
        "status": status,
        "reason": reason,
        "message": message,
        "flags": sorted(evidence.flags),
        "equivalent": evidence.is_equivalent(),
        "notes": evidence.notes,
    }


def judge_whole(case: Case, bench: Bench) -> dict[str, Any]:
    """Judge a kernel as any other; returns what the verdict says beside its times."""
    config = Config(diagnosis=False, draw_shapes=0)
    [row] = judge(case, bench, config)["evaluations"]
    return {
        "status": row["status"],
        "reason": row["reason"],
        "message": row["message"],
        "flags": sorted(set(row["flags"]) - OF_TIMES),
        "equivalent": row["equivalent"],
        "notes": [row["log"] or ""],
    }


def judge_often(work: tuple[Case, str, str, int]) -> list[dict[str, Any]]:
    """Judge one kernel some times in a bench of its own; returns a row for each time."""
    case, kind, device, times = work
    rows: list[dict[str, Any]] = []
    with Bench(device) as bench:
        for _ in range(times):
            found = (judge_whole if kind == "whole" else judge_calls)(case, bench)
            rows.append({"kernel": case.request_id, "kind": kind, "device": device, **found})
    return rows


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of earlier runs."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def print_changes(rows: Sequence[Mapping[str, Any]]) -> int:
    """Print every kernel whose verdict changes, with how often it was what; return their number."""
    groups: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["kernel"], row["kind"]].append(row)
    changing = 0
    for (name, kind), group in sorted(groups.items()):
        verdicts = Counter(
            (row["status"], row["reason"] or "", row["equivalent"], " ".join(row["flags"]))
            for row in group
        )
        if len(verdicts) == 1:
            continue
        changing += 1
        print(f"{name} ({kind})")
        for (status, reason, equivalent, flags), count in verdicts.most_common():
            print(f"  {count:3} x {status} {reason} equivalent={equivalent} {flags}")
    kinds = Counter(kind for _, kind in groups)
    counts = ", ".join(f"{count} kernels ({kind})" for kind, count in sorted(kinds.items()))
    print(f"{len(rows)} verdicts of {counts}: {changing} change")
    accused = [row for row in rows if row["status"] != "correct"]
    for row in accused:
        print(
            f"  {row['kernel']} ({row['kind']}): {row['status']}/{row['reason']} {row['message']}"
        )
    return changing


def main() -> None:
    """Judge what is missing and print what changes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="file of rows, resumed if it exists"
    )
    parser.add_argument("--seeds", type=int, default=20, help="verdicts of each kernel")
    parser.add_argument("--kernels", type=int, default=50, help="kernels, at most")
    parser.add_argument("--timed", type=int, default=10, help="kernels that are timed as well")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--processes", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    parser.add_argument("--only", nargs="+", default=[], help="parts of kernels' names")
    options = parser.parse_args()
    kernels = [
        item.make_case()
        for item in list_honest(options.device)
        if item.family != "generated"
        and (not options.only or any(part in item.name for part in options.only))
    ][: options.kernels]
    done = Counter((row["kernel"], row["kind"]) for row in read_rows(options.out))
    calls = [(kernel, "calls", options.device) for kernel in kernels]
    # Timed one after another, since each has the device to itself.
    whole = [(kernel, "whole", options.device) for kernel in kernels[:: 1 + len(kernels) // 10]]
    plans = ((calls, options.processes), (whole[: options.timed], 1))
    context = multiprocessing.get_context("spawn")
    with options.out.open("a") as file:
        for works, processes in plans:
            missing = [
                (*work, left)
                for work in works
                if (left := options.seeds - done[work[0].request_id, work[1]]) > 0
            ]
            if not missing:
                continue
            with context.Pool(processes, maxtasksperchild=1) as pool:
                for rows in pool.imap_unordered(judge_often, missing):
                    for row in rows:
                        file.write(json.dumps(row) + "\n")
                    file.flush()
                    print(f"{rows[0]['kernel']} ({rows[0]['kind']})", file=sys.stderr, flush=True)
    sys.exit(1 if print_changes(read_rows(options.out)) else 0)


if __name__ == "__main__":
    main()
