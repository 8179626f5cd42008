"""Flags that a verdict may carry, and what some of them mean for rankings."""

from __future__ import annotations

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
