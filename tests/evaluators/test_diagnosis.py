"""What a profile of a correct kernel shows: its own share of the time, and the bottleneck."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest
import torch

import store
from evaluators.device.roofline import Floor
from evaluators.diagnosis import bottleneck
from evaluators.judge import Config, judge
from evaluators.judging import nvidia_tools
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case

Text = Callable[[str], str]

# The product by three loops, compiled by hand as a kernel that binds through ctypes does it.
NATIVE = """
import ctypes
import subprocess
import torch
import torch.nn as nn

SOURCE = r'''
extern "C" void product(const float* x, const float* w, float* out, int rows, int n, int times) {
    for (int again = 0; again < times; again++)
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < n; c++) {
                double sum = 0;
                for (int k = 0; k < n; k++) sum += (double)x[r * n + k] * w[k * n + c];
                out[r * n + c] = sum > 0 ? (float)sum : 0.0f;
            }
}
'''
open("product.cpp", "w").write(SOURCE)
subprocess.run(["c++", "-O1", "-shared", "-fPIC", "product.cpp", "-o", "product.so"], check=True)
LIBRARY = ctypes.CDLL("./product.so")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        out = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, out)]
        LIBRARY.product(*pointers, *x.shape, {times})
        return {result}
"""
# Slow work of torch's own beside the native product, that changes nothing.
HYBRID = "torch.maximum(out, torch.sort(x.repeat(20, 1), dim=0)[0][:1].clamp(max=0) * 0)"


@pytest.fixture
def tables(bench: Bench, task: str) -> Callable[..., dict[str, list[dict[str, Any]]]]:
    """Return a function that judges a candidate's text with its diagnosis."""

    def judge_one(code: str, **config: Any) -> dict[str, list[dict[str, Any]]]:
        # Some blocks and calls: a profile takes no figure of them but the time of a call.
        settings = Config(
            timing_s=0.1, timing_limit_s=0.3, calls=3, robustness=False, draw_shapes=0,
            import_s=120, build_s=120, first_call_s=120, call_s=120, **config,
        )  # fmt: skip
        case = Case(kernel_id="k", task_id="t", workload_id="w", code=code, task_code=task)
        return judge(case, bench, settings)

    return judge_one


@pytest.mark.slow
def test_a_rewrite_in_pytorch_has_no_share_of_its_own(
    tables: Callable[..., Any], right_candidate: str
) -> None:
    found = tables(right_candidate)
    [row], [analysis] = found["evaluations"], found["analyses"]
    assert (row["status"], row["precision"]) == ("correct", "torch_default")
    assert row["custom_kernel_share"] == 0
    assert "no_custom_kernel" in row["flags"]
    assert row["log"] is None
    assert analysis["kernel_id"] == "k"
    assert (analysis["kind"], analysis["author"][:15]) == ("profiler", "torch.profiler ")
    assert "aten::mm" in analysis["body"]
    assert f"Bottleneck: {analysis['bottleneck']}." in analysis["body"]


@pytest.mark.slow
def test_where_a_kernel_of_its_own_is_required_a_rewrite_is_right_and_not_ranked(
    tables: Callable[..., Any], right_candidate: str
) -> None:
    found = tables(right_candidate, kernels="custom_required", diagnosis=False)
    [row] = found["evaluations"]
    assert (row["status"], row["precision"]) == ("correct", "torch_default")
    assert "custom_required" in row["flags"]
    assert all(timing["disturbed"] for timing in found["timings"])


_PROFILE = "import sys; sys.modules['evaluators.diagnosis.profile']"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "result", "least"),
    [
        # So much native work that a busy host cannot make the rest of the call as long.
        pytest.param(2000, "out", 0.5, marks=pytest.mark.slow),
        (20, HYBRID, 0.0),
    ],
)
def test_native_code_has_its_share(
    tables: Callable[..., Any], times: int, result: str, least: float
) -> None:
    code = NATIVE.replace("{times}", str(times)).replace("{result}", result)
    found = tables(code)
    [row] = found["evaluations"]
    assert row["status"] == "correct", row["log"]
    assert least < row["custom_kernel_share"] < 1, found["analyses"]
    assert "no_custom_kernel" not in row["flags"]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "line",
    [
        "torch.autograd.profiler.profile.__enter__ = None",
        "torch.autograd.profiler.profile.__exit__ = lambda self, *_: setattr("
        "self, 'function_events', [{'name': 'mine'}])",
        f"{_PROFILE}.gather = lambda *a, **k: {{'kernels': 7}}",
        f"import os; {_PROFILE}.gather = lambda *a, **k: os._exit(3)",
    ],
)
def test_a_kernel_that_breaks_the_profiler_keeps_its_verdict(
    tables: Callable[..., Any], right_candidate: str, line: str
) -> None:
    found = tables(right_candidate.replace("class ModelNew", f"{line}\n\n\nclass ModelNew"))
    [row] = found["evaluations"]
    assert row["status"] == "correct", row["message"]
    assert row["custom_kernel_share"] is None
    assert found["analyses"] == []
    assert "profile: none" in row["log"]


# ---- what a worker tells -------------------------------------------------------------------------

HONEST = {
    "kernels": [["void mine(float*)", 300_000, 2], ["ampere_sgemm_128x64_nn", 100_000, 1]],
    "busy_ns": 392_000,
    "wall_ns": 900_000,
    "launches": 3,
    "waits": 0,
    "own_code": False,
}


def test_escape_sequences_of_a_name_reach_no_terminal() -> None:
    told = bottleneck.read_profile(HONEST | {"kernels": [["\x1b[31mred\x00\n", 1, 1]]})
    assert told.kernels[0].name == r"\x1b[31mred\x00\n"


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::AbsFunctor<float>>(int)",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nn_align1>(Params)",
        "sm90_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize128x128x32_warpgroupsize1x1x1",
        "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_coopA_NNT",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1>(x)",
        "void splitKreduce_kernel<32, 16, int, float>(x)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 8>(float*)",
        "triton_poi_fused_add_relu_0",
        "Memcpy DtoD (Device -> Device)",
    ],
)
def test_kernels_of_libraries_are_known_by_name(name: str) -> None:
    told = bottleneck.read_profile(
        HONEST | {"kernels": [[name, 100, 1], ["relu_kernel(float*)", 100, 1]]}
    )
    assert bottleneck.share(told, "cuda") == 0.5


# ---- text and bottleneck -------------------------------------------------------------------------

PEAKS = bottleneck.Peaks(bandwidth=4.8e12, float_peak=6.7e13)


def test_the_text_of_fixed_figures() -> None:
    work = Floor(moved_bytes=1_600_000_000, operations=2_000_000_000)
    row = bottleneck.analysis(bottleneck.read_profile(HONEST), 0.4, work, PEAKS, device="cuda")
    assert row["bottleneck"] == "memory_bandwidth"
    assert row["body"] == (
        "One call: 0.4 ms, 3 kernels. Of the time in kernels, under the profiler:\n"
        " 75.0 %  0.3 ms  2x  void mine(float*)\n"
        " 25.0 %  0.1 ms  1x  ampere_sgemm_128x64_nn\n"
        "Own kernels: 75 % of the device's time.\n"
        "Memory: at least 1600 MB, 4000 GB/s, 83 % of 4800 GB/s.\n"
        "Compute: 2 GFLOP in the reference, 5000 GFLOP/s, 7 % of 6.7e+04 GFLOP/s.\n"
        "Device idle: 2 %.\n"
        "Bottleneck: memory_bandwidth."
    )


@pytest.mark.parametrize(
    ("time_ms", "work", "waits", "named"),
    [
        (0.4, Floor(moved_bytes=10**6, operations=2 * 10**10), 0, "compute"),
        (2.0, Floor(moved_bytes=10**6, operations=10**6), 0, "launch_overhead"),
        (2.0, Floor(moved_bytes=10**6, operations=10**6), 3, "synchronisation"),
        (0.4, Floor(moved_bytes=10**6, operations=10**6), 0, "unknown"),
        (0.4, Floor(), 0, "unknown"),
        # Faster than the reference's operations can be done: it does not do them.
        (0.1, Floor(moved_bytes=10**6, operations=2 * 10**10), 0, "unknown"),
    ],
)
def test_the_largest_share_of_the_time_is_the_bottleneck(
    time_ms: float, work: Floor, waits: int, named: str
) -> None:
    told = bottleneck.read_profile(HONEST | {"waits": waits})
    row = bottleneck.analysis(told, time_ms, work, PEAKS, device="cuda")
    assert row["bottleneck"] == named


def test_a_rewrite_is_not_held_to_the_operations_of_the_reference() -> None:
    work = Floor(moved_bytes=10**6, operations=2 * 10**10)
    body = bottleneck.analysis(bottleneck.read_profile(HONEST), 0.1, work, PEAKS, device="cuda")[
        "body"
    ]
    assert "fewer operations than the reference, whose 20 GFLOP would take 0.2985 ms" in body


def test_a_device_whose_profiler_sees_nothing_has_no_share() -> None:
    told = bottleneck.read_profile(HONEST | {"kernels": [], "busy_ns": 0})
    assert bottleneck.share(told, "cuda") is None
    assert "idle" not in bottleneck.analysis(told, 1.0, Floor(), PEAKS, device="cuda")["body"]


# ---- NVIDIA's tools ------------------------------------------------------------------------------

# As Nsight Compute writes `--csv` with `--set basic`, rules among the rows and words before them.
NCU = """==PROF== Connected to process 1234 (/usr/bin/python3.12)
==PROF== Profiling "mine" - 0: 0%....50%....100% - 9 passes
==PROF== Disconnected from process 1234
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name","Rule Type","Rule Description","Estimated Speedup Type","Estimated Speedup"
"0","1234","python3.12","127.0.0.1","mine(float *, int)","1","7","(256, 1, 1)","(128, 1, 1)","0","9.0","GPU Speed Of Light Throughput","SM Frequency","Ghz","1.41","","","","",""
"0","1234","python3.12","127.0.0.1","mine(float *, int)","1","7","(256, 1, 1)","(128, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Memory Throughput","%","81.26","","","","",""
"0","1234","python3.12","127.0.0.1","mine(float *, int)","1","7","(256, 1, 1)","(128, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","us","1,203.52","","","","",""
"0","1234","python3.12","127.0.0.1","mine(float *, int)","1","7","(256, 1, 1)","(128, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Compute (SM) Throughput","%","12.09","","","","",""
"0","1234","python3.12","127.0.0.1","mine(float *, int)","1","7","(256, 1, 1)","(128, 1, 1)","0","9.0","SpeedOfLight","","","","SOLBottleneck","OPT","Memory is more heavily utilized than Compute.","",""
"0","1234","python3.12","127.0.0.1","mine(float *, int)","1","7","(256, 1, 1)","(128, 1, 1)","0","9.0","Memory Workload Analysis","Memory Throughput","Tbyte/s","3.90","","","","",""
"0","1234","python3.12","127.0.0.1","mine(float *, int)","1","7","(256, 1, 1)","(128, 1, 1)","0","9.0","Occupancy","Achieved Occupancy","%","62.50","","","","",""
"1","1234","python3.12","127.0.0.1","tail(float *)","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Duration","ns","2,848","","","","",""
"1","1234","python3.12","127.0.0.1","tail(float *)","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0","GPU Speed Of Light Throughput","Memory Throughput","%","n/a","","","","",""
"""  # noqa: E501

PLACE = "mine(float *, float)+0x70 in mine.cu:6"
SANITIZER = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at mine(float *, float)+0x70 in mine.cu:6
=========     by thread (255,0,0) in block (3,0,0)
=========     Address 0x74b834000ffc is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x74b834000000 of size 4,092 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x8ae3] in mine
=========
========= Invalid __global__ read of size 4 bytes
=========     at mine(float *, float)+0x70 in mine.cu:6
=========     by thread (254,0,0) in block (3,0,0)
=========     Address 0x74b834000ff8 is out of bounds
=========
========= Uninitialized __global__ memory read of size 4 bytes
=========     at tail(float *)+0x80
=========     by thread (0,0,0) in block (0,0,0)
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure"
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 4 errors
"""


def test_figures_of_nsight_compute_become_an_analysis() -> None:
    found = nvidia_tools.parse_launches(NCU)
    assert found == [
        nvidia_tools.Launch("mine(float *, int)", 1_203_520.0, 81.26, 12.09, 62.5),
        nvidia_tools.Launch("tail(float *)", 2848.0),
    ]
    row = nvidia_tools.build_analysis(found)
    assert (row["kind"], row["bottleneck"]) == ("profiler", "memory_bandwidth")
    assert row["body"] == (
        "2 launches, 1.206 ms under the profiler.\n"
        " 99.8 %  memory 81 %, compute 12 %, occupancy 62 %  mine(float *, int)\n"
        "  0.2 %  memory 0 %, compute 0 %, occupancy 0 %  tail(float *)\n"
        "Of what the device can do: memory 81 %, compute 12 %.\n"
        "Bottleneck: memory_bandwidth."
    )
    assert nvidia_tools.parse_launches("==ERROR== ERR_NVGPUCTRPERM\n") == []
    assert (
        nvidia_tools.build_analysis([nvidia_tools.Launch("tail", 10.0)])["bottleneck"] == "unknown"
    )


def test_complaints_of_compute_sanitizer_become_findings() -> None:
    found = nvidia_tools.parse_complaints(SANITIZER)
    assert found == [
        nvidia_tools.Complaint("Invalid __global__ read of size 4 bytes", PLACE),
        nvidia_tools.Complaint(
            "Uninitialized __global__ memory read of size 4 bytes", "tail(float *)+0x80"
        ),
    ]
    rows = nvidia_tools.build_findings(found, "k" * 64, "2025.3.1")
    assert len({row["finding_id"] for row in rows}) == 2
    assert rows[0]["quote"] == f"Invalid __global__ read of size 4 bytes at {PLACE}"
    assert (rows[0]["class"], rows[0]["detector_version"]) == ("memory_error", 202503)
    assert nvidia_tools.parse_complaints("========= ERROR SUMMARY: 0 errors\n") == []


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("tool", ["ncu", "sanitizer"])
def test_without_the_tool_the_command_says_how_to_get_it(tool: str, tmp_path: Path) -> None:
    done = commands.run(
        ["evaluators", "diagnose", "--tool", tool, "--lake", str(tmp_path)],
        cwd=Path(nvidia_tools.__file__).parents[2],
        env={**os.environ, "CUDA_HOME": str(tmp_path), "PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert "on this machine" in done.stderr
    assert "CUDA toolkit" in done.stderr


def test_diagnose_names_an_unknown_kernel_before_it_starts_a_judge(
    writer: store.Writer, lake_url: str, tmp_path: Path
) -> None:
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    writer.append({"kernels": [b.kernel("one")]}, "a kernel")
    done = commands.run(
        ["evaluators", "diagnose", "L1-9", "--lake", lake_url],
        cwd=Path(nvidia_tools.__file__).parents[2],
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert done.returncode == 1
    assert 'no kernel "L1-9"' in done.stderr


@pytest.mark.slow
def test_a_tool_starts_a_fresh_process_that_leaves_nothing(
    bench: Bench, task: str, right_candidate: str, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    code = right_candidate.replace(
        "class ModelNew",
        "import subprocess\n"
        "left = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('left', left.pid)\n"
        f"try:\n    open({str(outside)!r}, 'w')\n"
        "except PermissionError:\n    print('refused')\n\n\n"
        "class ModelNew",
    ).replace("return ", "print('called', tuple(x.shape)); return ")
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=code, task_code=task)
    order = nvidia_tools.write_order(case, bench, tmp_path)
    done = subprocess.run(
        [*nvidia_tools.build_keeper_command(300.0), *nvidia_tools.build_replay_command(order)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines.count("called (48, 32)") == 2
    assert not Path(f"/proc/{lines[0].split()[1]}").exists()
    assert outside.exists() != ("refused" in lines)


@pytest.mark.slow
def test_a_process_that_does_not_end_is_ended() -> None:
    done = subprocess.run([*nvidia_tools.build_keeper_command(0.2), "sleep", "600"], check=False)
    assert done.returncode == 124


@pytest.mark.skipif(
    not torch.cuda.is_available() or shutil.which("ncu") is None, reason="needs a GPU and ncu"
)
def test_nsight_compute_sees_a_kernel(gpu_bench: Bench, task: str, right_candidate: str) -> None:
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=right_candidate, task_code=task)
    [row] = nvidia_tools.run_tool(case, gpu_bench, "ncu")["analyses"]
    assert row["author"].startswith("ncu 20")


@pytest.mark.skipif(
    not torch.cuda.is_available() or shutil.which("compute-sanitizer") is None,
    reason="needs a GPU and compute-sanitizer",
)
def test_compute_sanitizer_has_no_complaint_about_torch(
    gpu_bench: Bench, task: str, right_candidate: str
) -> None:
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=right_candidate, task_code=task)
    assert nvidia_tools.run_tool(case, gpu_bench, "sanitizer")["findings"] == []
