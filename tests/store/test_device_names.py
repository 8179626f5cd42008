"""Names of devices: what the store refuses, and what `store check` and a pull say."""

from __future__ import annotations

import builders as b
import pytest

import store
from store.errors import RowsRejected
from store.schema.catalog import NAME_RULE
from store.upkeep import integrity

GPU = b.device("H200", kind="cuda")


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "name", ["H200 ", " H200", "\u041d200", "H200\u200b", "RTX  3090", "", "H\t2"]
)
def test_a_name_that_looks_like_another_is_refused(writer: store.Writer, name: str) -> None:
    device = b.device("forged", kind="cuda") | {"name": name}
    with pytest.raises(RowsRejected, match=NAME_RULE):
        writer.append({"devices": [GPU, device]}, "devices")
    with pytest.raises(RowsRejected, match=NAME_RULE):
        writer.load({"devices": [GPU, device]}, "devices", bundle_id="devices")
    writer.append({"devices": [GPU, b.device("Intel Xeon E5-2670")]}, "devices")


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("other", [{"name": "h200", "kind": "cuda"}, {"name": "H200"}])
def test_a_check_reports_one_name_of_two_spellings_or_kinds(
    writer: store.Writer, other: b.Row
) -> None:
    writer.append({"devices": [GPU]}, "a device")
    assert integrity.check(writer.location) == []
    writer.append({"devices": [b.device("other") | other]}, "another one")
    [problem] = integrity.check(writer.location)
    assert (problem.table, problem.rule, problem.examples) == (
        "devices", "one name has one spelling and one kind of device", ["name='h200'"],
    )  # fmt: skip


@pytest.mark.slow
def test_a_processor_with_the_name_of_a_gpu_does_not_rank_with_it(
    writer: store.Writer, lake_url: str
) -> None:
    task, honest, forged = b.task(), b.kernel("honest"), b.kernel("forged")
    sizes, processor = b.workload(task), b.device("forged") | {"name": "H200"}
    judged = b.evaluation(honest, task, sizes, GPU)
    of_processor = b.evaluation(forged, task, sizes, processor)
    writer.append(
        {
            "tasks": [task], "task_labels": [b.label(task)], "workloads": [sizes],
            "devices": [GPU, processor], "kernels": [honest, forged],
            "evaluations": [judged, of_processor],
            "timings": [
                *b.session(judged, [1.0] * 9, eager=[5.0] * 9),
                *b.session(of_processor, [1.0] * 9, clock="gpu", eager=[100.0] * 9),
                *b.session(of_processor, [1.0] * 9, clock="latency", eager=[90.0] * 9),
            ],
        },
        "verdicts",
    )  # fmt: skip
    with store.open(lake_url) as lake:
        found = lake.sql("SELECT clock, speedup FROM best_kernels WHERE device = 'H200'").rows()
    assert found == [{"clock": "gpu", "speedup": 5}]
