"""Evaluators judge kernels: an evaluator maps a candidate and its task to rows of the lake.

The command line and `Pool` read pending kernels from a lake and append the rows. The process that
judges (`JudgeProcess` starts it) and the workers below it never open a lake.

The names below are the public face of the judge; the module `evaluators.judge` is the evaluator
that judges by them. They load on first use, so that `import evaluators` needs neither torch nor the
store. A fork server does not run this file: it loads the package by its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluators.device.lock import DeviceLock as DeviceLock
    from evaluators.judge import Config as Config
    from evaluators.judging.bench import Bench as Bench
    from evaluators.judging.case import Case as Case
    from evaluators.sandbox.launcher import Limits as Limits
    from evaluators.scheduling.judges.process import JudgeProcess as JudgeProcess
    from evaluators.scheduling.pool import Pool as Pool
    from evaluators.scheduling.pool import Verdict as Verdict
    from evaluators.scheduling.prebuild import Builder as Builder
    from evaluators.service.client import Client as Client
    from evaluators.service.client import Judgement as Judgement
    from evaluators.service.client import SubmittedKernel as SubmittedKernel

EXPORTS = {
    "Bench": "evaluators.judging.bench",
    "Builder": "evaluators.scheduling.prebuild",
    "Case": "evaluators.judging.case",
    "Client": "evaluators.service.client",
    "Config": "evaluators.judge",
    "DeviceLock": "evaluators.device.lock",
    "JudgeProcess": "evaluators.scheduling.judges.process",
    "Judgement": "evaluators.service.client",
    "Limits": "evaluators.sandbox.launcher",
    "Pool": "evaluators.scheduling.pool",
    "SubmittedKernel": "evaluators.service.client",
    "Verdict": "evaluators.scheduling.pool",
}
"""Where each public name is defined."""


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(EXPORTS[name]), name)
