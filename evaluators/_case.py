"""What an evaluator is given, one kernel and its task, and what it may note about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

WEIGHT_SEED = 42
"""Seed under which both sides construct their module. Public: kernels match weights by it."""
Policy: TypeAlias = Literal["fp32_strict", "allow_tf32"]
"""fp32_strict: no precision below the task's own. allow_tf32: float32 may be computed in TF32."""

Kernels: TypeAlias = Literal["any", "custom_required"]
"""any: a rewrite in PyTorch is a kernel too. custom_required: it is right, and is not ranked."""

FLAGS = {
    "reuses_output_buffer": "an output changes when the next call is made",
    "nondeterministic": "the same inputs give answers that differ by more than 4 e0",
    "parameters_renamed": "a task parameter has no counterpart; judged with weights of the seed",
    "timed_outputs_unverified": "the task remembers, draws or changes inputs; timings unverified",
    "weak_task": "an answer without work passes this task (table task_audits)",
    "left_processes": "processes were left behind, and ended by us",
    "baseline_drift": "eager took another time without the candidate's process: noisy",
    "below_resolution": "shorter than the judge's clock can tell: counted as the least it can",
    "not_frozen": "another author's kernel, where workers are only stopped by signals: noisy",
    "more_threads": "uses more processors than the threads that all arms are given: noisy",
    "shares_device": "another process of the kernel's holds the GPU as well: noisy",
    "contended": "other work shared the host: noisy by every clock but gpu",
    "timed_end_to_end": "launching it waits for the GPU: timed by the host's clock, all arms alike",
    "near_roofline": "about as fast as memory allows, or faster than the reference's operations",
    "confirmed_win": "a surprising speedup, found again in a fresh process",
    "unconfirmed_win": "a surprising speedup that a fresh process did not show: noisy",
    "no_custom_kernel": "library kernels take all device time; noisy under custom_required",
    "precision_below_policy": "rounds more than the policy allows, where sums cancel: noisy",
    "state_differs": "buffers or parameters are others than the task's after the calls",
    "another_function": "another answer by more than rounding where inputs change sign or mean",
    "fails_scaled": "wrong on inputs 40 times as large",
    "fails_signed": "wrong on inputs moved to a mean of zero",
    "fails_random_signs": "wrong on inputs with random signs",
    "fails_uneven": "wrong where one in 64 inputs is 64 times as large as the rest",
    "fails_positive": "wrong on absolute values of the inputs",
    "fails_shifted": "wrong on inputs moved by 2.5",
    "fails_equal_corners": "wrong on the same values in another order with the corners kept",
    "fails_noncontiguous": "wrong on inputs with gaps in memory, which the reference takes",
    "fails_zeros": "wrong on inputs that are all zero",
    "fails_constants": "wrong on inputs whose rows have equal elements",
    "fails_ties": "wrong on inputs of a few values that occur often",
    "fails_infinities": "wrong on inputs with infinities among them",
    "fails_nan": "wrong on inputs with NaN among them",
    "fails_empty_rows": "wrong on inputs without rows, which the reference takes",
    "fails_perturbed_parameters": "wrong with other weights than those of the seed",
}
"""Every flag of `evaluations.flags` with its meaning. A flag decides no verdict."""
NONEQUIVALENT = frozenset(
    {
        "another_function",
        "fails_perturbed_parameters",
        "parameters_renamed",
        "state_differs",
    }
)
"""Flags of kernels that are another function than the task's module: `evaluations.equivalent` is
false. evaluators/README.md argues each flag; the view `nonequivalent` repeats the rule for rows
from before the column."""
UNRANKED = frozenset({"precision_below_policy"})
"""Flags of kernels that are right and rank nothing: their timings are stored as noisy."""


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
    best_speedup: float | None = None
    """Best speedup over eager measured so far at this task, workload and device; None for none."""
    build: Mapping[str, Any] | None = None
    """What compiling it ahead has shown: seconds, hit, failure."""
    weak: bool = False
    """Whether an audit has found answers without work that pass the task."""
    trusted: bool = False
    """Whether it is the starter suite's, a generated task's teacher's, or one's own file."""
    elsewhere: bool = False
    """Whether somebody else measures a surprising win again; until then it is unconfirmed."""


@dataclass(kw_only=True)
class Evidence:
    """What correctness calls have shown so far."""

    seeds: list[int] = field(default_factory=list)
    """Input seeds, secret until the verdict."""
    flags: set[str] = field(default_factory=set)
    comparison: Any = None
    """The worst Comparison so far, or the one that failed."""
    notes: list[str] = field(default_factory=list[str])
    """Lines for the row's log."""
    compared_as_function: bool = False
    """Whether every check that tells another function has run to its end."""

    def equivalent(self) -> bool | None:
        """Whether the candidate is the function that the task's module is.

        None where no flag says otherwise, but not every check has run.
        """
        if self.flags & NONEQUIVALENT:
            return False
        return True if self.compared_as_function else None
