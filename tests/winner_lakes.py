"""Lakes of tests in which kernels of the starter suite have won on this machine's processor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import builders
from new_lakes import copy_starter_lake

import store
from evaluators.device.fingerprint import shorten_name
from evaluators.device.placement import read_processor_model

WON = {
    "rms_norm_residual": "native",
    "gelu_scale_bias": "addcmul",
    "diag_matmul": "broadcast",
    "layer_norm": "cpp_row",
}


def make_lake(
    folder: Path,
    won: Mapping[str, str] = WON,
    speedup: float = 2.0,
    axes: Mapping[str, Mapping[str, int]] | None = None,
) -> str:
    """Make a lake with the starter suite, and a verdict on a kernel of some tasks.

    won: Name of the kernel by that of its task. axes: Other axes than the task's own.
    """
    url = copy_starter_lake(folder)
    model = read_processor_model()
    device = builders.device(shorten_name(model), model=model)
    with store.open(url) as lake:
        rows = lake.run(
            "SELECT task_names.task_id, task_names.task, workloads.workload_id, kernels.kernel_id, "
            "kernels.path FROM generations JOIN kernels USING (kernel_id) JOIN task_names USING "
            "(task_id) JOIN workloads USING (task_id) WHERE workloads.name = 'default'"
        ).rows()
    evaluations: list[builders.Row] = []
    timings: list[builders.Row] = []
    workloads: list[builders.Row] = []
    for row in rows:
        if str(row["path"]).endswith(f"{row['task']}/{won.get(row['task'])}.py"):
            sizes = row
            if axes and row["task"] in axes:
                sizes = builders.workload(row, "other", json.dumps(dict(axes[row["task"]])))
                workloads.append(sizes)
            judged = builders.evaluation(row, row, sizes, device, equivalent=True)
            evaluations.append(judged)
            timings += builders.session(judged, [1.0] * 9, eager=[speedup] * 9)
    with store.writer(url, author="tests") as writer:
        tables = {
            "devices": [device],
            "workloads": workloads,
            "evaluations": evaluations,
            "timings": timings,
        }
        writer.append(tables, "verdicts on this processor")
    return url
