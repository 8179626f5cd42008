"""NVIDIA's tools on a correct kernel: Nsight Compute's figures, compute-sanitizer's complaints.

Both start the process that they examine, so the kernel is called once more in a fresh process
(`worker.replay`). Their output may contain text of the kernel: it is read as foreign data.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evaluators.diagnosis.bottleneck import render_template
from evaluators.judging.case import Case
from store.commandline.escape import escape_terminal
from store.errors import EvaluatorError, SandboxFailed
from store.ids import content_id, uuid7

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench

Tool: TypeAlias = Literal["ncu", "sanitizer"]

_PROGRAMS = {
    "ncu": ("ncu", "with the CUDA toolkit and with NVIDIA Nsight Compute"),
    "sanitizer": ("compute-sanitizer", "with the CUDA toolkit (cuda-sanitizer)"),
}
"""Name of each tool's program, and what it comes with."""
_CHECKS = ("memcheck", "initcheck")
_MOST_LAUNCHES = 50
_MOST_NAME = 200
_MOST_FINDINGS = 20
_LOG_BYTES = 4 << 20
_LIMIT_S = 300.0
_DECIDES = 30.0
_PACKAGE = str(Path(__file__).resolve().parent.parent / "__init__.py")
# Load the package by its path, as in a fork server, because its parent folder must not be listed.
_START = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("evaluators", sys.argv[1])
sys.modules["evaluators"] = importlib.util.module_from_spec(spec)
from evaluators.worker.replay import keep, main
"""
_NANOSECONDS = {
    **dict.fromkeys(("ns", "nsecond"), 1.0),
    **dict.fromkeys(("us", "usecond"), 1e3),
    **dict.fromkeys(("ms", "msecond"), 1e6),
    **dict.fromkeys(("s", "second"), 1e9),
}
_SHARES = {
    "Memory Throughput": "memory",
    "Compute (SM) Throughput": "compute",
    "Achieved Occupancy": "occupancy",
}
_COMPLAINT = re.compile(
    r"^========= ((?:Invalid|Uninitialized|Misaligned|Out-of-range|Illegal)\b.*)"
)
_PLACE = re.compile(r"^=========\s+at (.*)")


@dataclass
class Launch:
    """One launch by Nsight Compute; memory, compute and occupancy are percentages of the peak."""

    name: str
    ns: float = 0.0
    memory: float = 0.0
    compute: float = 0.0
    occupancy: float = 0.0


@dataclass(frozen=True)
class Complaint:
    """A wrong access, and its place."""

    what: str
    where: str


def find_program(tool: Tool) -> str:
    """Return the path of a tool's program. Raises EvaluatorError where it is not installed."""
    name, origin = _PROGRAMS[tool]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    path = shutil.which(name) or shutil.which(name, path=f"{home}/bin")
    if path is None:
        raise EvaluatorError(
            f"{name} is not installed on this machine", f"It comes {origin}; put it on the PATH."
        )
    return path


def parse_launches(text: str) -> list[Launch]:
    """Return the launches in Nsight Compute's CSV, in order, without values that are no numbers."""
    lines = text.splitlines()
    begin = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    launches: dict[str, Launch] = {}
    for row in csv.DictReader(lines[begin:]):
        name, unit = row.get("Metric Name") or "", row.get("Metric Unit") or ""
        launch = launches.setdefault(row["ID"], Launch(_escape(row.get("Kernel Name") or "")))
        with contextlib.suppress(ValueError):
            value = float((row.get("Metric Value") or "").replace(",", ""))
            if name == "Duration" and unit in _NANOSECONDS:
                launch.ns = value * _NANOSECONDS[unit]
            elif name in _SHARES and unit == "%":
                setattr(launch, _SHARES[name], value)
    return list(launches.values())


def parse_complaints(text: str) -> list[Complaint]:
    """Return the distinct complaints of compute-sanitizer with their places, in order."""
    complaints: dict[Complaint, None] = {}
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        what, where = _COMPLAINT.match(line), _PLACE.match(following)
        if what:
            complaints[Complaint(_escape(what[1]), _escape(where[1]) if where else "")] = None
    return list(complaints)[:_MOST_FINDINGS]


def build_analysis(launches: Sequence[Launch]) -> dict[str, Any]:
    """Return a row of `analyses` without kernel_id and author: launches and the larger limit.

    The figures of the limit are means over the launches weighted by their time; the bottleneck is
    the larger one, or unknown below 30 %.
    """
    total_ns = sum(launch.ns for launch in launches) or 1.0
    memory = sum(launch.ns * launch.memory for launch in launches) / total_ns
    compute = sum(launch.ns * launch.compute for launch in launches) / total_ns
    bottleneck = "memory_bandwidth" if memory >= compute else "compute"
    if max(memory, compute) < _DECIDES:
        bottleneck = "unknown"
    body = render_template(
        "diagnosis_ncu.j2",
        launches=sorted(launches, key=lambda launch: -launch.ns),
        total_ns=total_ns,
        memory=memory,
        compute=compute,
        bottleneck=bottleneck,
    )
    return {
        "analysis_id": uuid7(),
        "kind": "profiler",
        "body": body,
        "bottleneck": bottleneck,
        "confidence": None if bottleneck == "unknown" else min(max(memory, compute) / 100, 1.0),
    }


def build_findings(
    complaints: Sequence[Complaint], kernel_id: str, released: str
) -> list[dict[str, Any]]:
    """Return rows of `findings`; version 2025.3.0 becomes 202503."""
    major, minor = [*re.findall(r"\d+", released), "0", "0"][:2]
    number = int(major) * 100 + int(minor)
    detector, _ = _PROGRAMS["sanitizer"]
    findings: list[dict[str, Any]] = []
    for complaint in complaints:
        at = f" at {complaint.where}" if complaint.where else ""
        parts = (detector, str(number), "memory_error", complaint.what, complaint.where)
        findings.append(
            {
                "finding_id": content_id("finding", kernel_id, *parts),
                "kernel_id": kernel_id,
                "detector": detector,
                "detector_version": number,
                "class": "memory_error",
                "quote": f"{complaint.what}{at}",
                "confidence": 1.0,
            }
        )
    return findings


def run_tool(case: Case, bench: Bench, tool: Tool) -> dict[str, list[dict[str, Any]]]:
    """Run a tool on one kernel; returns rows of `analyses` and `findings`.

    Raises SandboxFailed where the tool's output cannot be read, EvaluatorError where it is not
    installed, ReferenceFailed where the task cannot run.
    """
    path = find_program(tool)
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\d+\.\d+(?:\.\d+)?)", answer.stdout)
    released = found[1] if found else "unknown"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        order = write_order(case, bench, Path(scratch))
        if tool == "ncu":
            options = ("--set", "basic", "--csv", "--target-processes", "application-only")
            wanted = ("--profile-from-start", "off", "--launch-count", str(_MOST_LAUNCHES))
            text = _run_on_one_call([path, *options, *wanted], order, Path(scratch))
            launches = parse_launches(text)
            if not launches:
                raise SandboxFailed("ncu reported no kernel", _quote_last_lines(text))
            about = {"kernel_id": case.kernel_id, "author": f"ncu {released}"}
            return {"analyses": [build_analysis(launches) | about], "findings": []}
        complaints: dict[Complaint, None] = {}
        for check in _CHECKS:
            text = _run_on_one_call([path, "--tool", check], order, Path(scratch))
            if "ERROR SUMMARY" not in text:
                raise SandboxFailed(f"{check} did not finish", _quote_last_lines(text))
            complaints.update(dict.fromkeys(parse_complaints(text)))
    return {"analyses": [], "findings": build_findings(list(complaints), case.kernel_id, released)}


def write_order(case: Case, bench: Bench, scratch: Path) -> Path:
    """Write the files, inputs and requests of one call; returns the file with the requests."""
    from evaluators.memory.tensors import ALIGN_BYTES, MappedBox, lay_out
    from evaluators.references.imported_file import WEIGHT_SEED
    from evaluators.sandbox.folders import write_files

    reference = bench.open_reference(case.task_code, json.loads(case.axes))
    values = [reference.arguments, reference.inputs(secrets.randbits(48))]
    size = max(lay_out(values).end, ALIGN_BYTES)
    folder = scratch / "work"
    (folder / "tmp").mkdir(parents=True)
    write_files(folder, case.files)
    inbox = scratch / "inbox"
    with open(inbox, "w+b") as file:
        file.truncate(size)
        [arguments, inputs] = MappedBox(file.fileno(), size).put(values)["list"]
    setting = {"device": bench.device, "threads": 1, "flush_bytes": 4}
    requests = [
        ("load", {"path": case.path, "entry_point": case.entry_point, "names": {}}),
        ("construct", {"seed": WEIGHT_SEED, "arguments": arguments}),
        ("fill", {"slot": 0, "inputs": inputs}),
        ("call", {"slot": 0}),
        ("call", {"slot": 0}),
    ]
    order = scratch / "order.json"
    content = {
        **{"folder": str(folder), "inbox": str(inbox), "inbox_bytes": size},
        **{"setting": setting, "requests": requests},
    }
    order.write_text(json.dumps(content), "utf-8")
    return order


def build_replay_command(order: Path) -> list[str]:
    """Return the command that makes the requests of an order."""
    return [sys.executable, "-I", "-c", _START + "main(sys.argv[2])", _PACKAGE, str(order)]


def build_keeper_command(limit_s: float) -> list[str]:
    """Return a prefix for a command that ends all of its processes with it, or at the limit."""
    keeper = f"keep({limit_s}, sys.argv[2:])"
    return [sys.executable, "-I", "-c", _START + keeper, _PACKAGE]


def _run_on_one_call(command: Sequence[str], order: Path, scratch: Path) -> str:
    """Return the log that a tool writes about one call, which the kernel cannot write to."""
    folder, log, said = scratch / "work", scratch / "log", scratch / "said"
    log.unlink(missing_ok=True)
    passed = ("PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CC", "CXX")
    kept = {n: os.environ[n] for n in (*passed, "TORCH_CUDA_ARCH_LIST") if n in os.environ}
    inside = {"TMPDIR": "tmp", "TORCH_EXTENSIONS_DIR": "extensions", "TRITON_CACHE_DIR": "triton"}
    environment = {
        **kept,
        **{name: str(folder / part) for name, part in inside.items()},
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        # Each tensor has its own allocation, so that the tool sees an access beyond it.
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
    }
    with open(said, "wb") as output:
        subprocess.run(
            [
                *build_keeper_command(_LIMIT_S),
                *command,
                "--log-file",
                str(log),
                *build_replay_command(order),
            ],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    texts: list[str] = []
    for file in (log, said):
        if file.exists() and file.stat().st_size:
            with open(file, "rb") as opened:
                texts.append(opened.read(_LOG_BYTES).decode("utf-8", "backslashreplace"))
    return "\n".join(texts)


def _quote_last_lines(text: str) -> str:
    return " / ".join(_escape(line) for line in text.strip().splitlines()[-3:])


def _escape(text: str) -> str:
    return escape_terminal(text[:_MOST_NAME])
