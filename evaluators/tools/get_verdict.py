"""Wait for the verdict on a submitted kernel."""

from typing import Any

import store
from evaluators.submissions.attempts import JudgeTools
from store.lake.reader import Lake
from store.mcp.lake_tools import Reply

READS_ONLY = False
_LONGEST_WAIT_S = 55.0
_SHOWN = ("status", "reason", "message", "equivalent", "quarantined", "speedup", "speedup_low")


async def run(desk: JudgeTools, attempt: str, wait_s: float = 30.0) -> Reply:
    """Return the verdict on an attempt, or its state if it is not judged yet. Then ask again.

    state is queued, judged, or fault: the judge itself failed, which says nothing about the kernel,
    and the next call judges again. status is correct, incorrect, rejected, timeout, crash or
    compile_error; reason, message and log say why. speedup is that over eager in a session that
    ranks; `speedups` also has disturbed ones, and none over a baseline that is too short for the
    clock (unresolved). threads is what kernel and baselines had on a processor. A kernel that is
    not equivalent to the task's module does not rank. other_shapes says what the kernel does at
    other input shapes: held, wrong, or raises.

    Args:
        attempt: generation_id that submit_kernel returned.
        wait_s: Wait up to this many seconds, at most 55.
    """
    target = await desk.find_attempt(attempt)
    verdict = await desk.wait_for_verdict(target, min(wait_s, _LONGEST_WAIT_S))
    ids = {"generation_id": target.generation_id, "kernel_id": target.kernel_id}
    if verdict is None:
        return Reply(snapshot=await desk.resolve(None), data=ids | {"state": "queued"})
    snapshot = await desk.resolve(None)
    state = "judged" if verdict.is_judged else "fault"
    lists = {"flags": list(verdict.flags), "findings": list(verdict.findings)}
    shown = {name: getattr(verdict, name) for name in _SHOWN}
    data: dict[str, Any] = {**ids, "state": state, **shown, **lists}
    if verdict.evaluation_id is not None:
        at_task = {"task_id": target.task_id, "kernel_id": target.kernel_id}
        parameters = {"evaluation_id": verdict.evaluation_id, "kernel_id": target.kernel_id}

        def read(lake: Lake) -> dict[str, Any]:
            row = lake.run(store.read_sql(__file__, "evaluation"), parameters).one() or {}
            speedups = lake.run(store.read_sql(__file__, "speedups"), parameters).rows()
            shapes = lake.run(store.read_sql(__file__, "shapes"), at_task).rows()
            return row | {"speedups": speedups, "other_shapes": shapes}

        data |= await desk.read(snapshot, read)
    return Reply(snapshot=snapshot, data=data)
