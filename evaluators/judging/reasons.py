"""Reasons of verdicts in plain words, and the detectors that can name the line behind them."""

from __future__ import annotations

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
