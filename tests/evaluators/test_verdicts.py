"""What the judge says of right, wrong and hostile candidates; each runs in a real process."""

from __future__ import annotations

import contextlib
import math
import os
import re
import statistics
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import pytest

from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.timing.surprising_wins import compute_speedups
from store.schema.baselines import Baseline

Judged = Callable[..., dict[str, Any]]
Text = Callable[[str], str]
BUSY_HOST = {"contended", "below_resolution"}
"""Flags that a busy host adds to any verdict, since its clock tells less."""

WRONG = {
    "a constant": ("return torch.zeros_like(x)", "incorrect", "incorrect_numerical"),
    "half precision inside": (
        "return torch.relu((x.half() @ self.weight.half()).float())",
        "incorrect",
        "incorrect_numerical",
    ),
    "another element type": (
        "return torch.relu(x @ self.weight).double()",
        "incorrect",
        "incorrect_dtype",
    ),
    "another shape": ("return torch.relu(x @ self.weight)[1:]", "incorrect", "incorrect_shape"),
    "a larger shape": (
        "return torch.relu(x @ self.weight).repeat(900, 1)",
        "incorrect",
        "incorrect_shape",
    ),
    "a tuple": ("return (torch.relu(x @ self.weight),)", "incorrect", "incorrect_type"),
    "a number": ("return 1.0", "incorrect", "incorrect_type"),
    "an object": ("return object()", "incorrect", "incorrect_type"),
    "not a number": ("return torch.relu(x @ self.weight) / 0 * 0", "incorrect", "nan"),
    "changes its input": (
        "y = torch.relu(x @ self.weight)\nx.zero_()\nreturn y",
        "incorrect",
        "input_mutated",
    ),
    "uninitialised memory": (
        "return torch.empty(x.shape[0], 32)",
        "incorrect",
        ("incorrect_numerical", "nan"),
    ),
    "cache by address": (
        "c = self.__dict__.setdefault('c', {})\n"
        "if x.data_ptr() not in c: c[x.data_ptr()] = torch.relu(x @ self.weight)\n"
        "return c[x.data_ptr()]",
        "incorrect",
        "incorrect_numerical",
    ),
    "cache by version": (
        "c = self.__dict__.setdefault('c', {})\n"
        "k = (id(x), x._version)\n"
        "if k not in c: c[k] = torch.relu(x @ self.weight)\n"
        "return c[k]",
        "incorrect",
        "incorrect_numerical",
    ),
    "memorised after many calls": (
        "n = self.__dict__.setdefault('n', [])\n"
        "n.append(0)\n"
        "if len(n) < 28: self.__dict__['y'] = torch.relu(x @ self.weight)\n"
        "return self.__dict__['y']",
        "rejected",
        "memorised_output",
    ),
    "raises": ("raise RuntimeError('no')", "crash", "exception"),
    "an error without a text": (
        "class E(Exception):\n    def __str__(self): raise ValueError\nraise E()",
        "crash",
        "exception",
    ),
    "aborts": ("import os; os.abort()", "crash", "signal"),
    "leaves with code 0": ("import sys; sys.exit(0)", "crash", "early_exit"),
    "leaves at once": ("import os; os._exit(0)", "crash", "early_exit"),
    "too much memory": ("return torch.empty(1 << 44)", "crash", "out_of_memory"),
    "loops": ("while True: pass", "timeout", "call_timeout"),
    "prints without end": (
        "import os\nwhile True: os.write(1, b'x' * 65536)",
        "crash",
        "exception",
    ),
}


EARLIER = """
import torch, torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))
        self.answers = []

    def forward(self, x):
        if len(self.answers) < 28:
            self.answers.append(torch.relu(x @ self.weight))
        return self.answers[-1]
"""
"""Gives an earlier answer from the 29th call on."""


@pytest.mark.slow
def test_an_accusation_that_a_fresh_process_does_not_repeat_is_a_note(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_candidate, started = Bench.start_candidate, []

    def start_another_text(self: Bench, files: dict[str, str], *rest: Any) -> Any:
        started.append(EARLIER if not started else right_candidate)
        return start_candidate(self, {name: started[-1] for name in files}, *rest)

    monkeypatch.setattr(Bench, "start_candidate", start_another_text)
    row = judge_code(EARLIER, timing_limit_s=60.0)
    assert started == [EARLIER, right_candidate]
    assert row["status"] == "correct", row
    assert (
        "a fresh process does not repeat on other inputs: memorised_output: a timed" in row["log"]
    )


@pytest.mark.slow
def test_an_accusation_is_stored_once_a_fresh_process_has_repeated_it(
    judge_code: Judged, candidate: Text
) -> None:
    # As many blocks as a session asks for, however long a busy host takes for them.
    row = judge_code(candidate(WRONG["memorised after many calls"][0]), timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == ("rejected", "memorised_output"), row
    assert "a process before it showed on other inputs: memorised_output: a timed" in row["log"]


REPEATED = {
    "half precision inside",
    "a larger shape",
    "a number",
    "an object",
    "uninitialised memory",
    "cache by version",
    "an error without a text",
    "leaves at once",
    "aborts",
    "loops",
    "memorised after many calls",
}
"""Candidates whose reason another candidate of `make test` gets as well."""


def mark_repeated(names: Iterable[str], repeated: Collection[str]) -> list[Any]:
    """Return the parameters of a test, those that repeat another one marked slow."""
    return [pytest.param(n, marks=[pytest.mark.slow] if n in repeated else []) for n in names]


@pytest.mark.repeats(run=5)
@pytest.mark.parametrize("name", mark_repeated(WRONG, REPEATED))
def test_a_candidate_that_is_not_right_is_a_row_that_says_why(
    name: str, judge_code: Judged, candidate: Text
) -> None:
    forward, status, reason = WRONG[name]
    hangs = {"first_call_s": 2.0} if reason == "call_timeout" else {}
    row = judge_code(candidate(forward), file_mb=2.0, **hangs)
    assert row["status"] == status, row
    assert row["reason"] in ((reason,) if isinstance(reason, str) else reason), row
    assert row["message"]
    assert row["timings"] == []


@pytest.mark.slow
def test_what_the_reference_loads_once_does_not_count_as_the_time_of_an_answer(
    judge_code: Judged, candidate: Text, task: str
) -> None:
    # A library is loaded once in a process, however often the task's file is imported.
    loads = "import sys, time\n        if not hasattr(sys, 'loaded'):\n            "
    loads += "sys.loaded = True\n            time.sleep(0.6)\n        return"
    slow = task.replace("        return", f"        {loads}")
    row = judge_code(candidate("while True: pass"), slow, first_call_s=1.0)
    # 50 answers of 0.6 s would have allowed 30 s more.
    limit = re.fullmatch(r"no answer to a call after ([\d.]+) s", row["message"])
    assert limit is not None
    assert float(limit[1]) < 25


@pytest.mark.slow
def test_the_protocol_for_training_does_not_wait_long_for_a_first_call(
    judge_code: Judged, candidate: Text
) -> None:
    row = judge_code(candidate("while True: pass"), protocol="training", first_call_s=600.0)
    assert (row["status"], row["reason"]) == ("timeout", "call_timeout"), row
    # 20 s, and 50 times as long as the task takes, which is more on a busy machine.
    assert float(row["message"].split()[-2]) < 300, row


BROKEN = {
    "a bracket is open": ("def f(:", "syntax_error"),
    "bytes that are no Python": ("x = '\x00'", "syntax_error"),
    "no such module": ("import no_such_module_at_all", "import_failed"),
    "no ModelNew": ("class Model: pass", "no_entry_point"),
    "a failing constructor": (
        "class ModelNew:\n    def __init__(self, n): raise ValueError(n)",
        "init_failed",
    ),
    "the reference's class": ("class ModelNew(Model): pass", "import_failed"),
    "a failing compiler": (
        "import subprocess\nsubprocess.run(['false'], check=True)",
        "build_failed",
    ),
}


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize("name", BROKEN)
def test_a_candidate_that_does_not_build_is_a_compile_error(name: str, judge_code: Judged) -> None:
    code, reason = BROKEN[name]
    row = judge_code(code)
    assert (row["status"], row["reason"]) == ("compile_error", reason), row


@pytest.mark.clock
def test_a_right_candidate_is_correct_and_timed(judge_code: Judged, right_candidate: str) -> None:
    row = judge_code(right_candidate, timing_s=0.1, timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == ("correct", None), row
    assert row["max_scaled_error"] <= 1
    assert row["precision_class"] == "fp32"
    assert len(set(row["seeds"])) == len(row["seeds"]) >= 21
    assert row["rel_l2_error"] < 1e-5
    assert row["build_s"] < row["wall_s"]
    assert row["peak_memory_bytes"] > 1 << 20
    kernel, eager, *_ = row["timings"]
    assert (kernel["arm"], eager["arm"]) == ("kernel", "eager")
    assert kernel["session_id"] == eager["session_id"]
    assert kernel["blocks"] == eager["blocks"] == list(range(len(kernel["samples_ms"])))
    assert len(kernel["blocks"]) >= 20
    assert min(kernel["samples_ms"]) > 0
    assert set(kernel["positions"]) <= {0, 1, 2, 3, 4}
    assert all(a != b for a, b in zip(kernel["positions"], eager["positions"], strict=True))


@pytest.mark.slow
@pytest.mark.clock
def test_a_kernel_that_waits_is_slower_than_eager(judge_code: Judged, candidate: Text) -> None:
    row = judge_code(
        candidate("import time; time.sleep(0.004); return torch.relu(x @ self.weight)"),
        timing_limit_s=2.0,
    )
    kernel, eager, *_ = row["timings"]
    assert row["status"] == "correct"
    assert statistics.median(kernel["samples_ms"]) > 4
    assert statistics.median(kernel["samples_ms"]) > statistics.median(eager["samples_ms"])


def test_seeds_are_new_each_time(judge_code: Judged, candidate: Text) -> None:
    code = candidate("return x")
    assert judge_code(code)["seeds"] != judge_code(code)["seeds"]


@pytest.mark.slow
def test_a_lazy_tensor_is_rejected(judge_code: Judged) -> None:
    row = judge_code(
        "import torch, torch.nn as nn\n"
        "class Later(torch.Tensor): pass\n"
        "class ModelNew(nn.Module):\n"
        "    def __init__(self, n):\n"
        "        super().__init__(); self.w = nn.Parameter(torch.randn(n, n))\n"
        "    def forward(self, x): return torch.relu(x @ self.w).as_subclass(Later)\n"
    )
    assert (row["status"], row["reason"]) == ("rejected", "lazy_output")


@pytest.mark.slow
@pytest.mark.clock
def test_a_worker_that_lies_about_time_is_caught_by_the_outside_clock(
    judge_code: Judged, candidate: Text
) -> None:
    lie = (
        "import sys, time\n"
        "worker = sys.modules['evaluators.worker.loop']\n"
        "start = time.perf_counter_ns()\n"
        "worker.perf_counter_ns = lambda: start + (time.perf_counter_ns() - start) // 2000\n"
    )
    row = judge_code(lie + candidate("time.sleep(0.003); return torch.relu(x @ self.weight)"))
    assert (row["status"], row["reason"]) == ("rejected", "timer_mismatch"), row


@pytest.mark.slow
def test_replacing_a_clock_is_rejected(judge_code: Judged, right_candidate: str) -> None:
    row = judge_code("import time\ntime.perf_counter = lambda: 0.0\n" + right_candidate)
    assert (row["status"], row["reason"]) == ("rejected", "timer_mismatch"), row
    assert "perf_counter" in row["message"]


@pytest.mark.slow
@pytest.mark.clock
def test_work_that_goes_on_after_the_return_gains_no_time(
    judge_code: Judged, candidate: Text
) -> None:
    spin = (
        "import threading, torch\n"
        "def spin():\n"
        "    while True: torch.ones(100_000).exp_()\n"
        "for _ in range(6): threading.Thread(target=spin, daemon=True).start()\n"
    )
    row = judge_code(spin + candidate("return torch.relu(x @ self.weight)"))
    assert row["status"] == "correct", row
    low, _, _ = compute_speedups(row["timings"])["eager"]
    assert row["timings"][0]["disturbed"] or low < -math.log(0.9)


FORGERIES = {
    "words": 'b\'{"status": "correct"}\'',
    "answers": 'b\'{"number": "0", "elapsed_ns": 1, "odd": null}\'',
    "noise": "bytes(range(256)) * 8",
}


@pytest.mark.parametrize("name", mark_repeated(FORGERIES, {"words", "noise"}))
def test_forged_messages_on_every_descriptor_are_rejected(
    name: str, judge_code: Judged, right_candidate: str
) -> None:
    plain = (
        "import os\n"
        "for fd in range(64):\n"
        "    try: os.write(fd, " + FORGERIES[name] + ")\n"
        "    except OSError: pass\n"
    )
    row = judge_code(plain + right_candidate)
    assert (row["status"], row["reason"]) == ("rejected", "forbidden_code"), row
    # Not seen in the text.
    hidden = plain.replace("os.write", "getattr(os, bytes([119, 114, 105, 116, 101]).decode())")
    row = judge_code(hidden + right_candidate)
    assert (row["status"], row["reason"]) == ("rejected", "malformed_output"), row


@pytest.mark.slow
def test_a_worker_that_answers_with_an_unpicklable_mess_is_rejected(
    judge_code: Judged, right_candidate: str
) -> None:
    mess = (
        "import sys\n"
        "worker = sys.modules['evaluators.worker.loop']\n"
        "worker.describe = lambda value: {'output': {'tensor': ['float32', [1e9], [1], -64]},"
        " 'devices': ['cpu']}\n"
    )
    row = judge_code(mess + right_candidate)
    assert (row["status"], row["reason"]) == ("rejected", "malformed_output"), row


def test_the_environment_is_a_white_list(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_LAKE", "/secret/lake")
    look = (
        # The text does not show which file it is.
        "text = open(bytes([47, *b'proc', 47, *b'self', 47, *b'environ'])).read()\n"
        "import os\n"
        "print('env', sorted(os.environ), text)\n"
        "raise SystemError('seen')\n"
    )
    row = judge_code(look + right_candidate)
    assert row["status"] == "compile_error"
    assert "OMP_NUM_THREADS" in row["log"]
    assert "secret" not in row["log"]
    assert "FLYWHEEL_LAKE" not in row["log"]


def test_the_working_directory_holds_the_candidate_and_nothing_else(
    judge_code: Judged, right_candidate: str
) -> None:
    row = judge_code(
        "import os\nprint('holds', sorted(os.listdir('.')))\nassert 0\n" + right_candidate
    )
    assert "holds ['kernel.py', 'tmp']" in row["log"]


@pytest.mark.slow
def test_a_candidate_may_delete_its_directory(judge_code: Judged, right_candidate: str) -> None:
    row = judge_code(
        "import os, shutil\nshutil.rmtree(os.getcwd(), ignore_errors=True)\n" + right_candidate
    )
    assert row["status"] == "correct", row


def names_of_processes() -> list[str]:
    names: list[str] = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # ended meanwhile
            names.append(comm.read_text().strip())
    return names


@pytest.mark.slow
def test_a_daemon_that_leaves_its_session_is_killed(
    judge_code: Judged, right_candidate: str
) -> None:
    name = f"stray{os.getpid()}"
    daemon = (
        "import ctypes, os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        f"        ctypes.CDLL(None).prctl(15, {name.encode()!r}, 0, 0, 0)\n"
        "        os.closerange(0, 64)\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
    )
    row = judge_code(daemon + right_candidate)
    assert row["status"] == "correct", row
    assert "left_processes" in row["flags"]  # a busy host adds flags of its own
    assert name not in names_of_processes()


@pytest.mark.slow
def test_a_candidate_that_kills_its_parent_does_not_stop_the_judge(
    judge_code: Judged, right_candidate: str
) -> None:
    row = judge_code("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n" + right_candidate)
    # Refused where signals stay inside the sandbox, else the end of the candidate.
    assert row["status"] in ("compile_error", "crash", "rejected"), row
    row = judge_code(right_candidate)
    assert row["status"] == "correct", row


@pytest.mark.slow
def test_a_static_output_buffer_is_a_flag(judge_code: Judged, candidate: Text) -> None:
    row = judge_code(
        candidate(
            "out = self.__dict__.setdefault('out', torch.empty(x.shape[0], 32))\n"
            "torch.mm(x, self.weight, out=out)\n"
            "return out.relu_()"
        )
    )
    assert row["status"] == "correct", row
    assert set(row["flags"]) - BUSY_HOST == {"reuses_output_buffer"}


@pytest.mark.slow
def test_axes_replace_names_of_the_task(judge_code: Judged, candidate: Text) -> None:
    count = "assert x.shape[0] == 7, x.shape\nreturn torch.relu(x @ self.weight)"
    assert judge_code(candidate(count), axes='{"ROWS": 7}')["status"] == "correct"
    assert judge_code(candidate(count))["status"] == "crash"


def test_a_fault_of_the_task_is_not_the_candidates(
    judge_code: Judged, right_candidate: str
) -> None:
    row = judge_code(right_candidate, task="def get_inputs(): return []\n")
    assert (row["status"], row["reason"]) == ("evaluator_error", "reference_failed")
    row = judge_code(right_candidate, axes='{"COLUMNS": 7}')
    assert row["status"] == "evaluator_error"
    assert "COLUMNS" in row["message"]


def test_text_of_a_candidate_can_be_stored(judge_code: Judged, right_candidate: str) -> None:
    row = judge_code(
        "import os\nos.write(1, b'\\xff\\x00')\nraise OSError('\\ud800\\x00')\n" + right_candidate
    )
    assert row["status"] == "compile_error"
    for text in (row["log"], row["message"]):
        assert "\x00" not in text
        text.encode("utf-8")
    assert "\\xff" in row["log"]


def test_long_output_is_cut(judge_code: Judged, right_candidate: str) -> None:
    row = judge_code("print('x' * 1_000_000)\nprint('the end')\nraise OSError\n" + right_candidate)
    assert len(row["log"]) <= 32 * 1024
    assert "left out" in row["log"]


@pytest.mark.slow
def test_files_beside_the_entry_are_imported(bench: Any) -> None:
    from evaluators.judge import Config, judge
    from evaluators.judging.case import Case

    task = (
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x, k): return {'a': 1} if k < 0 else [x * k, x > 0]\n"
        "def get_inputs(): return [torch.randn(9), 3]\ndef get_init_inputs(): return []\n"
    )
    case = Case(
        kernel_id="k",
        task_id="t",
        workload_id="w",
        task_code=task,
        code="import torch\nfrom part.one import times\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x, k): return [times(x, k), x > 0]\n",
        other_files=(("part/one.py", "def times(x, k): return x * k\n"),),
    )
    [row] = judge(case, bench, Config(draw_shapes=0, timing_s=0.1))["evaluations"]
    assert row["status"] == "correct", row


def test_a_file_outside_the_folder_is_refused(bench: Any, right_candidate: str) -> None:
    from evaluators.judge import Config, judge
    from evaluators.judging.case import Case

    for path in ("../escaped.py", "/tmp/escaped.py"):
        case = Case(
            kernel_id="k",
            task_id="t",
            workload_id="w",
            code=right_candidate,
            task_code="x = 1",
            path=path,
        )
        [row] = judge(case, bench, Config(draw_shapes=0))["evaluations"]
        assert row["status"] in ("rejected", "evaluator_error")
        assert not Path(path).exists()


@pytest.mark.gpu
@pytest.mark.parametrize("baselines", [None, ("eager",)])
def test_a_right_candidate_is_correct_on_a_gpu(
    gpu_bench: Bench, right_candidate: str, task: str, baselines: tuple[Baseline, ...] | None
) -> None:
    case = Case(kernel_id="k", task_id="t", workload_id="w", code=right_candidate, task_code=task)
    tables = judge(case, gpu_bench, Config(draw_shapes=0, baselines=baselines))
    [evaluation] = tables["evaluations"]
    assert evaluation["status"] == "correct", tables
    assert "timed_end_to_end" not in evaluation["flags"]  # nothing here waits for the GPU
    assert {row["arm"] for row in tables["timings"]} >= {"kernel", "eager"}


@pytest.mark.slow
def test_a_worker_that_a_flag_has_ended_has_no_profile_and_a_verdict(
    judge_code: Judged, candidate: Text
) -> None:
    row = judge_code(
        candidate(
            "import os\n"
            "if float(x.abs().max()) > 50: os._exit(3)\n"
            "return torch.relu(x @ self.weight)"
        ),
        diagnosis=True,
    )
    assert row["status"] == "correct", row
    assert "fails_scaled" in row["flags"]
    assert "profile: none" in row["log"]
