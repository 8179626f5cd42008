"""The correctness protocol: which calls a candidate gets, and what each of them decides.

`protocol` is its face. Verdict calls come first and decide. Robustness calls come last, on inputs
and weights that the task does not promise: honest kernels break on some of them, so they raise
flags (`judging.flags`) and decide no verdict.
"""
