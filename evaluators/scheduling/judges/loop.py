"""The main loop of a judge process, which imports torch so that the command line need not.

The parent (`evaluators.scheduling.judges.process`) sends one line of JSON per request and gets one
line back. The process holds no lake.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from evaluators.device.lock import DeviceLock
from evaluators.device.placement import count_threads
from evaluators.judging.case import Case
from evaluators.sandbox import isolation
from evaluators.sandbox.launcher import Template
from evaluators.sandbox.linux import this_process
from evaluators.scheduling import contract
from store.errors import EvaluatorError, HostUnfit, SandboxFailed

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench

_ROOT = Path(__file__).resolve().parents[3]
_LOST = ("crash", "timeout")
_LOOK_S = 0.5
"""Seconds between two looks of an idle process at whether others want the device's memory."""


def main(fd: int) -> None:
    """Answer one request after another until the parent is gone.

    No text of a task or a candidate runs in this process. Its walls are put up before torch is
    imported, since they would not reach torch's threads; they bound what a fault of the judge's
    own could do.
    """
    from evaluators.worker.build_cache import default_root, make_folders

    signal.signal(signal.SIGTERM, _end)
    this_process.reuse_memory()
    stream = socket.socket(fileno=fd).makefile("rwb")
    order = json.loads(stream.readline())
    evaluator, config = None, None
    if order["evaluator"] is not None:
        evaluator = contract.load(order["evaluator"])
        config = evaluator.Config(**order["config"])
    file = None if evaluator is None else evaluator.__file__
    builds = default_root()
    make_folders(builds)
    os.environ["HOME"] = os.environ["TMPDIR"]
    isolation.confine_judge(
        read=[
            *(str(_ROOT / name) for name in ("evaluators", "store", "catalog.yaml")),
            *([] if file is None else [str(Path(file).absolute().parent)]),
            str(builds),
        ],
        write=[os.environ["TMPDIR"], str(builds / "live"), str(builds / "kept"), *order["groups"]],
    )

    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def watch_parent() -> None:
        """End this process when the parent closes its socket or is gone, also amid a request."""
        hangup = select.poll()
        hangup.register(fd, select.POLLRDHUP)
        hangup.poll()
        signal.pthread_kill(main_thread, signal.SIGTERM)

    threading.Thread(target=watch_parent, name="watch-parent", daemon=True).start()
    if order["cores"] is not None:
        os.sched_setaffinity(0, order["cores"])
    template = Template(count_threads())
    if evaluator is not None and contract.find_confirm_win(evaluator):
        template.begin()  # it imports torch while this process does, and waits for the device

    gc.disable()  # collections would take a tenth of the time of the imports
    from evaluators.device.fingerprint import find_architecture
    from evaluators.judging.bench import Bench
    from evaluators.judging.case_result import CaseResult
    from evaluators.scheduling.prebuild import describe_toolchain
    from evaluators.worker.build_cache import Builds

    gc.freeze()
    gc.enable()
    # Ignore warnings: tasks may raise any, and torch warns about GPUs that are hidden from it.
    warnings.simplefilter("ignore")
    device = order["device"]
    if device == "auto":
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
    lock, memory = (
        DeviceLock(
            [(turnstile, held) for turnstile, held in order[name]],
            # The parent does not count this time.
            lambda waits: _send(stream, {"waits": waits}),
        )
        for name in ("locks", "memory_locks")
    )
    try:
        with lock.hold_exclusive():
            arch = find_architecture(device)
        tools = describe_toolchain(arch)
        bench = Bench(device, Builds(builds, tools), lock, template, memory, order["timing_cores"])
        # Not for one that only looks at texts, audits tasks or describes walls. On a GPU, what
        # their processes import besides torch depends on the baselines asked for.
        if device == "cpu" and evaluator is not None and contract.find_confirm_win(evaluator):
            bench.warm_up()
    except EvaluatorError as error:
        _send(stream, {"refused": [error.message, error.hint]})
        _leave()
    except Exception as error:
        _send(stream, {"fault": f"{type(error).__name__}: {error}"})
        raise
    with contextlib.suppress(_Ended), bench:
        _send(stream, {"device": bench.row, "arch": arch, "toolchain": tools})
        CaseResult.announce = lambda part: _send(stream, {"part": part})
        try:
            while True:
                # The workers of the last case keep their memory until another judge wants it.
                while not select.select([fd], [], [], _LOOK_S)[0]:
                    bench.yield_memory()
                if not (line := stream.readline()):
                    break
                try:
                    bench.share_memory()
                    answer = _answer(json.loads(line), evaluator, bench, config)
                except HostUnfit as unfit:
                    answer = {"unfit": [unfit.message, unfit.hint]}
                except Exception as error:
                    _send(stream, {"fault": f"{type(error).__name__}: {error}"})
                    raise
                _send(stream, answer)
        finally:
            signal.signal(signal.SIGTERM, _finish)
    _leave()


def _leave() -> NoReturn:
    """End this process at once: Python would take torch apart first, which takes a while."""
    sys.stderr.flush()
    isolation.end_helpers()
    os._exit(0)


def _send(stream: io.BufferedRWPair, message: Mapping[str, Any]) -> None:
    stream.write(json.dumps(message).encode() + b"\n")
    stream.flush()


def _answer(
    request: dict[str, Any], evaluator: contract.Evaluator | None, bench: Bench, config: Any
) -> dict[str, Any]:
    from evaluators.references.task import ReferenceFailed

    match request:
        case {"walls": _}:
            return bench.read_isolation()
        case {"audit": task}:
            from evaluators.judging.weak_tasks import build_audit_row

            try:
                with bench.lock.hold_shared():
                    return {"row": build_audit_row(task, bench), "why": ""}
            except (HostUnfit, ReferenceFailed, SandboxFailed) as failed:
                return {"row": None, "why": str(failed)}
        case {"look": fields, "tool": tool}:
            from evaluators.judging.nvidia_tools import run_tool

            try:
                with bench.lock.hold_exclusive():
                    return {"tables": run_tool(Case.read(fields), bench, tool), "why": None}
            except EvaluatorError as error:
                return {"tables": {}, "why": [error.message, error.hint]}
            except ReferenceFailed as failed:
                return {"tables": {}, "why": [str(failed), None]}
        case {"judge": fields} if evaluator is not None:
            case = Case.read(fields)
            adjusted = contract.adjust_config(config, case)
            if case.sessions == "second":
                tables = _remeasure(evaluator, case, bench, adjusted)
            else:
                tables = evaluator.judge(case, bench, adjusted)
            sick = None
            # The process of a kernel was lost, which may harm a device. An evaluator may be the
            # user's own, so nothing is assumed of the form of its answer; the parent checks it.
            match cast("object", tables):
                case {"evaluations": [*rows]} if any(
                    isinstance(row, dict) and row.get("status") in _LOST for row in rows
                ):
                    with bench.lock.hold_shared():  # beside judges that share the device
                        sick = bench.find_device_fault()
                case _:
                    pass
            return {"tables": tables, "sick": sick}
        case _:
            raise ValueError("this process was started without an evaluator")


class _Ended(SystemExit):
    """The parent has ended this process."""


def _end(*_: object) -> None:
    signal.signal(signal.SIGTERM, _finish)
    raise _Ended(143)


def _finish(*_: object) -> None:
    """Let the clean-up run to its end.

    SIG_IGN would do the same, but Python prints a traceback of a signal that arrives while its
    handler is replaced by SIG_IGN.
    """


def _remeasure(
    evaluator: contract.Evaluator, case: Case, bench: Bench, config: Any
) -> contract.Tables:
    from evaluators.judging.case_result import build_shared_columns
    from evaluators.references.task import ReferenceFailed
    from evaluators.sandbox.failures import Failed

    rows: list[dict[str, Any]] = []
    ending = {"status": "correct", "reason": None, "message": None, "log": None}
    own_fault: Exception | None = None
    try:
        rows = cast("contract.RemeasuringEvaluator", evaluator).remeasure(case, bench, config)
    except Failed as failed:
        own_fault = bench.blame_host(case, failed)
        ending = {name: getattr(failed, name) for name in ("status", "reason", "message")}
        ending["log"] = failed.detail
    except (HostUnfit, ReferenceFailed, SandboxFailed) as failed:
        bench.end_baselines()
        own_fault = failed
    if own_fault is not None:
        message = str(own_fault)
        ending = {"status": "evaluator_error", "reason": "internal", "message": message}
    evaluation = {
        **build_shared_columns(case, bench.row["device_id"]),
        "evaluation_id": "second",
        "evaluator": contract.name_of(evaluator),
        "evaluator_version": evaluator.VERSION,
        **ending,
    }
    timings = [{**row, "evaluation_id": "second"} for row in rows]
    return {"evaluations": [evaluation], "timings": timings}
