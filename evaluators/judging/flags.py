"""Flags of a verdict, and the flags that affect rankings."""

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
    "no_custom_kernel": "library kernels take all device time",
    "custom_required": "no device time outside library kernels was seen, which --kernels "
    "custom_required asks for: ranks nothing",
    "fewer_baselines": "the memory does not hold all baselines; timed against eager alone: "
    "ranks nothing",
    "precision_below_policy": "rounds more than the precision allows where sums cancel: "
    "ranks nothing",
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
UNRANKED = frozenset({"custom_required", "precision_below_policy"})
"""Flags of correct kernels that do not rank: their sessions are stored as disturbed."""


REASONS = {
    "incorrect_numerical": "An answer differs from the task's by more than its tolerance.",
    "incorrect_shape": "An output has another shape than the task's.",
    "incorrect_dtype": "An output has another element type than the task's.",
    "incorrect_device": "An output is on another device than the inputs.",
    "incorrect_count": "The kernel returns another number of outputs than the task.",
    "incorrect_type": "The kernel returns another type of object than the task.",
    "nan": "An output has NaN or infinities where the task's is finite, or inversely.",
    "input_mutated": "The kernel writes into its inputs, and the task does not.",
    "nondeterministic": "Equal inputs give different answers.",
    "parameters_ignored": "The kernel does not use weights that the task has.",
    "lazy_output": "An output may compute its values after the call, outside of the clock.",
    "timer_mismatch": "The kernel works while the judge's clock does not run.",
    "malformed_output": "The kernel's process sent something that is no output.",
    "forbidden_code": "The code attacks other processes, so the judge does not run it.",
    "reference_access": "The kernel reads the task's own answer.",
    "below_roofline": "The measured time is shorter than the hardware allows for this work.",
    "memorised_output": "A timed call gave an answer that does not follow from its inputs, as a "
    "cached one does.",
    "import_timeout": "Importing or constructing the kernel took too long (--import-s).",
    "build_timeout": "Building the kernel took too long (--build-s).",
    "call_timeout": "A call took too long (--call-s, --first-call-s).",
    "total_timeout": "The whole evaluation took too long (--total-s).",
    "exception": "A call raised an exception.",
    "signal": "A signal, such as that of an invalid memory access, ended the process.",
    "out_of_memory": "The memory was too small for the kernel.",
    "early_exit": "The kernel ended its process.",
    "syntax_error": "The file is not valid Python.",
    "import_failed": "Importing the file raised an exception.",
    "build_failed": "A compiler reports an error.",
    "no_entry_point": "The file does not define the class or function to judge.",
    "init_failed": "Constructing the kernel's class raised an exception.",
    "device_unavailable": "The device cannot be used. This says nothing about the kernel.",
    "host_unfit": "The host lacks what is needed to judge it. This says nothing about the kernel.",
    "sandbox_failed": "The judge's own machinery failed. This says nothing about the kernel.",
    "reference_failed": "The task itself fails. This says nothing about the kernel.",
    "comparison_failed": "The judge cannot compare the answers. This says nothing about the "
    "kernel.",
    "internal": "The judge itself failed. This says nothing about the kernel.",
}
"""Every reason of catalog.yaml but `unspecified`, in plain words for the author of the kernel."""
CAUSES = {
    "incorrect_numerical": ("uninitialised-output", "dropped-work", "precomputed-output"),
    "nan": ("uninitialised-output",),
    "input_mutated": ("input-mutation",),
    "lazy_output": ("lazy-output", "deferred-work"),
    "timer_mismatch": ("timer-tampering", "side-stream", "deferred-work", "judge-tampering"),
    "malformed_output": ("forged-verdict", "judge-tampering"),
    "memorised_output": ("result-caching", "precomputed-output", "phase-switch", "graph-replay"),
}
"""Detectors whose finding may be the cause of a reason."""
SUSPECT_CONFIDENCE = 0.5
"""Least confidence of a finding that is named as a cause, as in the view `suspects`."""
