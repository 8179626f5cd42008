"""What the published flashinfer-bench makes of an exported folder: it loads, builds, applies, runs.

    store export flashinfer-trace FOLDER --suite starter
    VENV/bin/python benchmarks/exported_traces.py FOLDER

VENV has torch, safetensors, flashinfer-bench 0.1.2, docstring-parser and pydantic (with
pydantic-core, annotated-types and typing-inspection); what else flashinfer-bench names, such as
flashinfer-python, is not used. This program imports nothing of ours. Kernels run in its process and
those of flashinfer-bench, without a sandbox: use a lake that you trust. Without a GPU, `run`
refuses to start, and kernels for GPUs raise. With one, `run` judges the best kernel of each
definition by its own rules and appends its traces to the folder, which
`store import flashinfer-trace FOLDER` reads.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

SEED = 0
ITERATIONS = "10"


def compare(registry: Any, definition: Any, solution: Any) -> str:
    """Build a solution and its definition's reference, call both, and say what came of it."""
    from flashinfer_bench.bench import BenchmarkConfig
    from flashinfer_bench.bench.utils import compute_error_stats

    expected = registry.build_reference(definition)(SEED)
    try:
        answer = registry.build(definition, solution)(SEED)
    except Exception as error:
        return f"raises {type(error).__name__}"
    return "differs" if compute_error_stats(answer, expected, BenchmarkConfig())[2] else "agrees"


def main() -> None:
    """Go through the folder, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder

    import torch
    from flashinfer_bench.apply import ApplyConfig, ApplyRuntime, apply
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import TraceSet

    dataset, registry = TraceSet.from_path(str(folder)), BuilderRegistry.get_instance()
    passed = {
        name: [trace.solution for trace in traces if trace.is_successful()]
        for name, traces in dataset.traces.items()
    }
    outcomes = Counter(
        compare(registry, dataset.definitions[name], dataset.get_solution(solution))
        for name, solutions in passed.items()
        for solution in solutions
    )
    best = {name: dataset.get_best_trace(name) for name in dataset.definitions}
    used: Counter[str] = Counter()
    # By default, apply would build the best kernel of every definition first, and stop at an error.
    with ApplyRuntime(dataset, ApplyConfig(aot_ratio=0.0)):
        for name in dataset.definitions:
            try:
                answer = apply(name, args=(SEED,), fallback=lambda _: None)
                used["reference" if answer is None else "kernel"] += 1
            except Exception as error:
                used[f"raises {type(error).__name__}"] += 1
    chosen = [trace.solution for trace in best.values() if trace is not None]
    command = [
        *(sys.executable, "-c", "from flashinfer_bench.cli.main import cli; cli()", "run"),
        *("--local", str(folder.resolve()), "--iterations", ITERATIONS, "--solutions", *chosen),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as logs:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=logs)
    again = TraceSet.from_path(str(folder))
    new = [
        trace
        for name, traces in again.traces.items()
        for trace in traces[len(dataset.traces.get(name, [])) :]
    ]
    rows = {
        "torch": f"{torch.__version__}, GPU: {torch.cuda.is_available()}",
        "definitions, solutions": f"{len(dataset.definitions)}, "
        f"{sum(map(len, dataset.solutions.values()))}",
        "traces (passed)": f"{sum(map(len, dataset.traces.values()))}, "
        f"{sum(map(len, passed.values()))}",
        "solutions that passed, called here": _list(outcomes),
        "definitions with a best trace": str(len(chosen)),
        "calls through apply": _list(used),
        "run, exit code": f"{done.returncode} {(done.stderr.strip().splitlines() or [''])[-1]}",
        "traces that run added": _list(Counter(trace.evaluation.status.value for trace in new)),
    }
    print("| step | result |\n|---|---|")
    for step, result in rows.items():
        print(f"| {step} | {result} |")


def _list(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in counts.most_common()) or "none"


if __name__ == "__main__":
    main()
