"""What an evaluator is given: one kernel and the task and workload to judge it on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Case:
    """One candidate, the task and workload that it is judged on, and their identities."""

    kernel_id: str
    task_id: str
    workload_id: str
    code: str
    path: str = "kernel.py"
    entry_point: str = "ModelNew"
    other_files: tuple[tuple[str, str], ...] = ()
    """Path and text of further files of the kernel."""
    task_code: str
    axes: str = "{}"
    """JSON object of module-level names of the task and the values that replace them."""
