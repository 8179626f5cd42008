"""The judge's clocks against a plain process, in pairs on the same cores.

    python benchmarks/agreement_plain.py --out DIR [--device cpu|cuda:0] [--rounds 3]
        [--liger FOLDER] [--filtered FOLDER] [--kernels softmax,layer_norm]

For every kernel and round, a plain process times eager and the kernel (`plain_process.py`), then a
judge judges the kernel, then another plain process times both again. The plain process imports only
torch, runs on the two cores of the judge with one thread, and writes the inputs of every call anew,
as the judge does. A short probe picks the two fastest cores. The judge process is idle meanwhile.
`kept` compares the same session with a plain process that keeps the answers of a sample, as the
judge has to (`plain_process.py`).
A ratio is the judge's median over the geometric mean of the two plain ones; `plain` beside it is
the second over the first, which says what the machine itself changes within a minute.

On a processor, the kernels are five of the starter suite. On a GPU, they are 8 operators of Liger
and 12 solutions of KernelBenchFiltered, which are read from checkouts:

    --liger     github.com/linkedin/Liger-Kernel at {liger}
    --filtered  github.com/pavanyellow/KernelBenchFiltered
                at {filtered}

Their code runs in the plain process without a sandbox. The judge makes 5 calls for correctness,
times eager as the only baseline, and makes neither robustness calls nor a profile.

Every result is a line of DIR/pairs.jsonl, so an interrupted run can be run again; lines of other
versions or another device are an error. What has no ratio is listed at the end with the reason.
"""

from __future__ import annotations

import argparse
import ast
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rate import print_table

import store
from evaluators import Config, JudgeProcess
from evaluators.device import placement
from evaluators.device.timing_conditions import is_contended, read_load
from evaluators.judge import VERSION
from evaluators.scheduling.cases import read_kernel, read_task
from store.errors import FlywheelError

LIGER = "ead96b618e5c67bddc6a6e9bcb99bfe6b5ab661c"
FILTERED = "67a4e2bba2c861618119905e27938c770af8a462"
STARTER_KERNELS = (
    "layer_norm/cpp_row",
    "layer_norm/two_moments",
    "reverse_cumsum/doubling",
    "diag_matmul/broadcast",
    "pairwise_distance/cdist",
)
FILTERED_TASKS = {
    24: "LogSoftmax",
    25: "Swish",
    42: "Max_Pooling_2D",
    47: "Sum_reduction_over_a_dimension",
    51: "Argmax_over_a_dimension",
    53: "Min_reduction_over_a_dimension",
    88: "MinGPTNewGelu",
    89: "cumsum",
    91: "cumsum_reverse",
    93: "masked_cumsum",
    98: "KLDivLoss",
    100: "HingeLoss",
}
"""tasks/level_1/NUMBER_NAME.py and best_agent_solutions/level_1/task_NUMBER.py. The solutions of
42, 89 and 91 build CUDA, the others are in Triton."""


@dataclass(frozen=True)
class Operator:
    """An operator of Liger: src/liger_kernel/ops/NAME.py, where NAME is the key of LIGER_OPERATORS.

    Eager and the operator get the same module with other `forward`s.
    """

    function: str
    """The class in this file whose `apply` is called."""
    arguments: str
    """Its arguments."""
    eager: str
    """The same by torch."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of the inputs."""
    parameters: Mapping[str, int] = field(default_factory=dict[str, int])
    """Their lengths by name."""


LIGER_OPERATORS = {
    "softmax": Operator("LigerSoftmaxFunction", "x", "torch.softmax(x, -1)", ((4096, 1024),)),
    "layer_norm": Operator(
        "LigerLayerNormFunction",
        "x, self.weight, self.bias, 1e-5",
        "F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)",
        ((2048, 2048),),
        {"weight": 2048, "bias": 2048},
    ),
    "rms_norm": Operator(
        "LigerRMSNormFunction",
        "x, self.weight, 1e-6",
        "x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight",
        ((2048, 4096),),
        {"weight": 4096},
    ),
    "fused_add_rms_norm": Operator(
        "LigerFusedAddRMSNormFunction",
        "x, y, self.weight, 1e-6",
        "(z := x + y) * torch.rsqrt(z.square().mean(-1, keepdim=True) + 1e-6) * self.weight, z",
        ((2048, 4096), (2048, 4096)),
        {"weight": 4096},
    ),
    "swiglu": Operator(
        "LigerSiLUMulFunction", "x, y", "F.silu(x) * y", ((1024, 8192), (1024, 8192))
    ),
    "geglu": Operator(
        "LigerGELUMulFunction",
        "x, y",
        "F.gelu(x, approximate='tanh') * y",
        ((1024, 8192), (1024, 8192)),
    ),
    "dyt": Operator(
        "LigerDyTFunction",
        "x, self.alpha, self.weight, self.bias",
        "self.weight * torch.tanh(self.alpha * x) + self.bias",
        ((2048, 4096),),
        {"alpha": 1, "weight": 4096, "bias": 4096},
    ),
    "group_norm": Operator(
        "LigerGroupNormFunction",
        "x, self.weight, self.bias, 64, 8, 1e-5",
        "F.group_norm(x, 8, self.weight, self.bias, 1e-5)",
        ((64, 64, 64),),
        {"weight": 64, "bias": 64},
    ),
}
MODULE = """
import torch
import torch.nn.functional as F
{imports}

class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {parameters}

    def forward(self, {inputs}):
        return {result}


def get_inputs():
    return [torch.randn(shape) for shape in {shapes}]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Pair:
    """A kernel with its task, as files."""

    name: str
    task: Path
    kernel: Path
    """The file with the entry point."""
    entry_point: str = "ModelNew"
    is_folder: bool = False
    """Whether the other files of its folder belong to it."""


def list_starter() -> Iterator[Pair]:
    """Yield the kernels of the starter suite, from the installed package."""
    starter = Path(store.__file__).parent / "starter"
    for name in STARTER_KERNELS:
        task = name.partition("/")[0]
        yield Pair(name, starter / f"tasks/{task}.py", starter / f"kernels/{name}.py")


def list_liger(checkout: Path, folder: Path) -> Iterator[Pair]:
    """Write the operators of Liger with the files that they import, and yield them."""
    for name, operator in LIGER_OPERATORS.items():
        place = folder / "liger" / name
        place.mkdir(parents=True, exist_ok=True)
        lines = [
            f"self.{parameter} = torch.nn.Parameter(torch.rand({length}))"
            for parameter, length in operator.parameters.items()
        ]
        texts = {
            "parameters": "\n        ".join(lines or ["pass"]),
            "inputs": ", ".join("xy"[: len(operator.shapes)]),
            "shapes": operator.shapes,
        }
        module = f"liger_kernel.ops.{name}"
        apply = f"{operator.function}.apply({operator.arguments})"
        imports = f"from {module} import {operator.function}\n"
        kernel = MODULE.format(name="ModelNew", imports=imports, result=apply, **texts)
        task = MODULE.format(name="Model", imports="", result=operator.eager, **texts)
        (folder / "liger" / f"{name}_task.py").write_text(task)
        (place / "kernel.py").write_text(kernel)
        copy_imports(checkout / "src", module, place)
        task_file = folder / "liger" / f"{name}_task.py"
        yield Pair(f"liger/{name}", task_file, place / "kernel.py", is_folder=True)


def copy_imports(source: Path, module: str, target: Path) -> None:
    """Copy a module of a package, and the modules of it that these import.

    The package's own __init__ files stay behind: they import every operator.
    """
    path = Path(*module.split(".")).with_suffix(".py")
    if (target / path).exists() or not (source / path).exists():
        return
    (target / path).parent.mkdir(parents=True, exist_ok=True)
    text = (source / path).read_text()
    (target / path).write_text(text)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("liger_kernel."):
            copy_imports(source, str(node.module), target)


def list_filtered(checkout: Path) -> Iterator[Pair]:
    """Yield the solutions of KernelBenchFiltered."""
    for number, name in FILTERED_TASKS.items():
        task = checkout / "tasks" / "level_1" / f"{number}_{name}.py"
        solution = checkout / "best_agent_solutions" / "level_1" / f"task_{number}.py"
        yield Pair(f"filtered/{number}_{name}", task, solution, "Model")


def time_plain(pair: Pair, device: str, seconds: float, cores: Sequence[int]) -> dict[str, Any]:
    """Time a pair in a plain process; raise FlywheelError with its last line where it fails."""
    order = {
        "task": str(pair.task.resolve()),
        "kernel": str(pair.kernel.resolve()),
        "entry_point": pair.entry_point,
        "device": device.partition(":")[0],
        "threads": placement.count_threads(),
        "seconds": seconds,
        # Beside a GPU the judge picks the fastest core for its workers as well, before each block.
        "core": None if device == "cpu" else (placement.pick_fast_cores(cores) or [None])[0],
    }
    program = Path(__file__).with_name("plain_process.py")
    _, _, gpu = device.partition(":")
    visible = placement.list_visible_devices()
    chosen = visible[int(gpu or 0)] if visible else gpu or "0"
    answer = subprocess.run(
        [sys.executable, str(program), json.dumps(order)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": chosen} if device != "cpu" else None,
    )
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["no output"]
        raise FlywheelError(f"the plain process failed: {lines[-1][:200]}")
    return json.loads(answer.stdout.splitlines()[-1])


def time_judged(pair: Pair, judge: JudgeProcess) -> list[dict[str, Any]]:
    """Judge a pair; return a row per session and clock.

    Raises FlywheelError if the verdict is not `correct`.
    """
    task = read_task(str(pair.task), None)
    file = pair.kernel.parent if pair.is_folder else pair.kernel
    entry_point = f"{pair.kernel.stem}:{pair.entry_point}" if pair.is_folder else pair.entry_point
    kernel = read_kernel(file, entry_point, task)
    case = replace(task.make_case(kernel, judge.row["kind"], None), precision="torch_default")
    tables = judge.judge(case)
    [evaluation] = tables["evaluations"]
    if evaluation["status"] != "correct":
        raise FlywheelError(
            f"the judge: {evaluation['status']}, {evaluation['reason']}: "
            f"{(evaluation['message'] or '')[:200]}"
        )
    sessions: dict[tuple[str, str], dict[str, Any]] = {}
    for row in tables["timings"]:
        disturbed = row.get("disturbed")
        session = sessions.setdefault(
            (row["session_id"], row["clock"]),
            {
                "clock": f"{row['clock']} {row['cache']}",
                "calls": row["inner_loops"],
                "resolution_ms": row["resolution_ms"],
                "blocks": len(row["samples_ms"]),
                "disturbed": bool(row["noisy"] if disturbed is None else disturbed),
                "flags": evaluation["flags"],
                "ms": {},
            },
        )
        session["ms"][row["arm"]] = statistics.median(row["samples_ms"])
    return list(sessions.values())


def describe_versions(judge: JudgeProcess, cores: Sequence[int]) -> dict[str, Any]:
    """Return what a line of results depends on."""
    names = ("name", "model", "torch", "triton", "python", "driver", "cuda")
    return {
        "package": store.__version__,
        "judge": VERSION,
        **{name: judge.row.get(name) for name in names},
        "system": platform.platform(),
        "cores": len(cores),
        "threads": placement.count_threads(),
    }


def measure_pairs(
    pairs: Sequence[Pair], options: argparse.Namespace, file: Path, cores: Sequence[int]
) -> dict[str, Any]:
    """Append a line for every pair and round that has none; return the versions."""
    config = Config(calls=5, robustness=False, diagnosis=False, draw_shapes=0, baselines=("eager",))
    with JudgeProcess("judge", options.device, config, cores) as judge:
        versions = describe_versions(judge, cores)
        lines = (
            [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        )
        if any(line["versions"] != versions for line in lines):
            raise SystemExit(f"{file} has results of other versions: give another --out")
        done = {(line["kernel"], line["round"]) for line in lines}
        for number in range(options.rounds):
            for pair in pairs:
                if (pair.name, number) in done:
                    continue
                line: dict[str, Any] = {"kernel": pair.name, "round": number, "versions": versions}
                loads = [read_load()]
                begin = time.monotonic()
                try:
                    line["before"] = time_plain(pair, options.device, options.plain_s, cores)
                    loads.append(read_load())
                    line["sessions"] = time_judged(pair, judge)
                    loads.append(read_load())
                    line["after"] = time_plain(pair, options.device, options.plain_s, cores)
                except FlywheelError as error:
                    line["left_out"] = str(error)
                loads.append(read_load())
                line["load"] = os.getloadavg()[0]
                line["contended"] = is_contended(loads)
                line["seconds"] = time.monotonic() - begin
                with file.open("a") as stream:
                    stream.write(json.dumps(line) + "\n")
                state = line.get("left_out", f"{line['seconds']:.0f} s")
                print(f"round {number + 1}: {pair.name}: {state}", file=sys.stderr, flush=True)
    return versions


@dataclass(frozen=True)
class Comparison:
    """One session of the judge beside the two plain processes around it."""

    kernel: str
    clock: str
    plain_ms: tuple[dict[str, float], dict[str, float]]
    """Before and after, by arm."""
    session: dict[str, Any]
    load: float
    """Of the machine over the last minute, with that of these processes."""
    contended: bool
    """Whether other work needed the cores in half of the readings, or took 5 % of the time."""

    def ratio(self, arm: str) -> float:
        """The judge's time of an arm over the plain one."""
        before, after = (plain[arm] for plain in self.plain_ms)
        return self.session["ms"][arm] / math.sqrt(before * after)

    def plain_ratio(self, arm: str) -> float:
        """The second plain time of an arm over the first."""
        before, after = (plain[arm] for plain in self.plain_ms)
        return after / before

    def speedups(self) -> tuple[float, float, float]:
        """Speedups over eager: plain before, plain after, judge."""
        before, after = (plain["eager"] / plain["kernel"] for plain in self.plain_ms)
        return before, after, self.session["ms"]["eager"] / self.session["ms"]["kernel"]


def compare(lines: Sequence[dict[str, Any]]) -> tuple[list[Comparison], list[str]]:
    """Return every comparison, and what is left out and why."""
    comparisons: list[Comparison] = []
    left_out: list[str] = []
    for line in lines:
        if "left_out" in line:
            left_out.append(f"{line['kernel']}, round {line['round'] + 1}: {line['left_out']}")
            continue
        both = line["before"]["ms"], line["after"]["ms"]
        for session in line["sessions"]:
            for clock in (session["clock"], f"{session['clock']}, kept"):
                if clock not in both[0]:
                    continue
                plain = both[0][clock], both[1][clock]
                comparisons.append(
                    Comparison(
                        line["kernel"], clock, plain, session, line["load"], line["contended"]
                    )
                )
        missing = {"gpu cold"} & both[0].keys() - {s["clock"] for s in line["sessions"]}
        if missing:
            left_out.append(f"{line['kernel']}, round {line['round'] + 1}: no session by gpu")
    return comparisons, left_out


def format_quartiles(values: Sequence[float]) -> str:
    """Return median and quartiles.

    >>> format_quartiles([1.0, 2.0, 3.0])
    '2.00 [1.50, 2.50]'
    """
    if len(values) < 2:
        return f"{values[0]:.2f}" if values else "-"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


RATIOS = (
    *("clock", "sessions", "not disturbed", "eager", "kernel", "speedup"),
    *("speedup, not disturbed", "plain eager", "plain kernel"),
)
SESSIONS = (
    *("kernel", "clock", "speedup plain", "judge", "ms plain (eager, kernel)", "ms judge"),
    *("calls", "disturbed", "load"),
)


def print_tables(comparisons: Sequence[Comparison], left_out: Sequence[str]) -> None:
    """Print ratios by clock, then every session, then what has no ratio."""
    arms = ("eager", "kernel")
    ratios: list[list[str]] = []
    for clock in sorted({each.clock for each in comparisons}):
        sessions = [each for each in comparisons if each.clock == clock]
        quiet = [each for each in sessions if not each.session["disturbed"]]
        ratios.append(
            [
                clock,
                str(len(sessions)),
                f"{len(quiet) / len(sessions):.0%}",
                *(format_quartiles([each.ratio(arm) for each in sessions]) for arm in arms),
                *(
                    format_quartiles([each.ratio("eager") / each.ratio("kernel") for each in some])
                    for some in (sessions, quiet)
                ),
                *(format_quartiles([each.plain_ratio(arm) for each in sessions]) for arm in arms),
            ]
        )
    print("Judge over plain process: median and quartiles.\n")
    print_table(RATIOS, ratios)
    print_table(
        SESSIONS,
        (
            [
                each.kernel,
                each.clock,
                f"{each.speedups()[0]:.3g}, {each.speedups()[1]:.3g}",
                f"{each.speedups()[2]:.3g}",
                ", ".join(
                    f"{math.sqrt(math.prod(plain[arm] for plain in each.plain_ms)):.4g}"
                    for arm in arms
                ),
                ", ".join(f"{each.session['ms'][arm]:.4g}" for arm in arms),
                str(each.session["calls"]),
                "yes" if each.session["disturbed"] else "no",
                f"{each.load:.1f}{' contended' if each.contended else ''}",
            ]
            for each in sorted(comparisons, key=lambda each: (each.clock, each.kernel))
        ),
    )
    print("Left out:" if left_out else "Nothing is left out.")
    for line in left_out:
        print(f"- {line}")


def list_pairs(options: argparse.Namespace) -> tuple[list[Pair], list[str]]:
    """Return the pairs to measure, and what is left out and why."""
    left_out: list[str] = []
    if options.device == "cpu":
        pairs = list(list_starter())
    else:
        pairs = []
        if options.liger is not None:
            pairs += list_liger(options.liger, options.out)
        else:
            left_out.append(f"{len(LIGER_OPERATORS)} operators of Liger: --liger is not set")
        if options.filtered is not None:
            pairs += list_filtered(options.filtered)
        else:
            left_out.append(
                f"{len(FILTERED_TASKS)} solutions of KernelBenchFiltered: --filtered is not set"
            )
    for pair in pairs:
        for file in (pair.task, pair.kernel):
            if not file.is_file():
                raise SystemExit(f"{file} does not exist: give a checkout of the commit named")
    if options.kernels:
        pairs = [p for p in pairs if p.name.rpartition("/")[2] in options.kernels.split(",")]
    return pairs, left_out


def main() -> None:
    """Measure what is missing, and print the tables."""
    text = (__doc__ or "").format(liger=LIGER, filtered=FILTERED)
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--device", default="cpu", help="cpu, or a GPU such as cuda:0")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of each kernel (default: 3)")
    parser.add_argument("--kernels", default="", help="names without their folder (default: all)")
    parser.add_argument("--liger", type=Path, help="checkout of Liger")
    parser.add_argument("--filtered", type=Path, help="checkout of KernelBenchFiltered")
    parser.add_argument(
        "--plain-s", type=float, default=4.0, help="seconds of a plain process (default: 4)"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pairs, left_out = list_pairs(options)
    cores = placement.choose_place(options.device).cores
    if options.device == "cpu":  # two cores: one of them is the judge's, so kernels have one thread
        cores = placement.pick_fast_cores(cores) or cores
    os.sched_setaffinity(0, cores)
    file = options.out / "pairs.jsonl"
    versions = measure_pairs(pairs, options, file, cores)
    comparisons, without_ratio = compare(
        [json.loads(line) for line in file.read_text().splitlines()]
    )
    print(", ".join(f"{name} {value}" for name, value in versions.items() if value), "\n")
    print_tables(comparisons, [*left_out, *without_ratio])


if __name__ == "__main__":
    main()
