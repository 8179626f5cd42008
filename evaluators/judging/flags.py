"""Flags of a verdict, and the flags that affect rankings."""

from __future__ import annotations

FLAGS = {
    "reuses_output_buffer": "a call overwrites the output of the call before it",
    "nondeterministic": "identical inputs give answers that differ by more than 4 e0",
    "parameters_renamed": "a task parameter has no counterpart; judged with weights from the seed",
    "timed_outputs_unverified": "no timed call could be checked (the task keeps state or draws, or "
    "answers have another layout in memory in every call): ranks by no clock",
    "weak_task": "a trivial answer passes this task (table task_audits)",
    "left_processes": "left processes behind, which the judge ended",
    "baseline_drift": "eager's time changed once the candidate's process had ended: ranks nothing",
    "below_resolution": "too short for the judge's clock; counted as the shortest time it measures",
    "not_frozen": "another author's kernel on a machine without control groups: ranks nothing",
    "more_threads": "uses more CPU time than its threads allow: ranks nothing",
    "shares_device": "another process of the kernel also holds the GPU: ranks nothing",
    "contended": "other work ran on the host: ranks by no clock",
    "timed_end_to_end": "launching it waits for the GPU: all arms are timed by the host's clock",
    "unpinned": "judge and workers had no core each while calls were timed with their launches: "
    "`latency` and `throughput` contain differences between cores",
    "near_roofline": "near the memory bound, or faster than the reference's operations allow",
    "confirmed_win": "a surprising speedup that a fresh process confirmed",
    "unconfirmed_win": "a surprising speedup that a fresh process did not confirm: ranks nothing",
    "no_custom_kernel": "library kernels take all device time; ranks nothing under custom_required",
    "fewer_baselines": "the memory does not hold all baselines; timed against eager alone: "
    "ranks nothing",
    "precision_below_policy": "rounds more than the policy allows where sums cancel: ranks nothing",
    "accepted_by_task": "beyond the judge's tolerance, accepted by the task's own rules",
    "state_differs": "parameters or buffers differ from the task's after the calls",
    "another_function": "off by more than rounding on inputs with another sign, mean or scale, or "
    "if one input varies alone",
    "fails_scaled": "wrong on inputs 40 times as large",
    "fails_signed": "wrong on inputs shifted to a mean of zero",
    "fails_random_signs": "wrong on inputs with random signs",
    "fails_uneven": "wrong on inputs with one element in 64, or part of a dimension, far larger "
    "than the rest",
    "fails_positive": "wrong on absolute values of the inputs",
    "fails_shifted": "wrong on inputs shifted by 2.5",
    "fails_equal_corners": "wrong on the same values in another order, with the corners kept",
    "fails_noncontiguous": "wrong on noncontiguous inputs that the reference accepts",
    "fails_zeros": "wrong on inputs that are all zero",
    "fails_constants": "wrong on inputs whose rows are constant",
    "fails_ties": "wrong on inputs with many repeated values",
    "fails_infinities": "wrong on inputs that contain infinities",
    "fails_nan": "wrong on inputs that contain NaN",
    "fails_empty_rows": "wrong on inputs without rows, which the reference accepts",
    "fails_perturbed_parameters": "wrong with parameters or buffers other than those from the seed",
}
"""Every flag of `evaluations.flags` with its meaning. Flags do not decide the verdict."""
NONEQUIVALENT = frozenset(
    {
        "another_function",
        "fails_perturbed_parameters",
        "parameters_renamed",
        "state_differs",
    }
)
"""Flags of kernels that compute a different function from the task's module: their
`evaluations.equivalent` is false. evaluators/README.md gives the reasons. The view `nonequivalent`
repeats the rule for rows from before the column existed."""
UNRANKED = frozenset({"precision_below_policy"})
"""Flags of correct kernels that do not rank: their sessions are stored as disturbed."""
