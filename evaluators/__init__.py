"""Evaluators judge kernels: an evaluator maps a candidate and its task to rows of the lake.

The command line and `Pool` read pending kernels from a lake and append the rows. The process that
judges (`JudgeProcess` starts it) and the workers below it never open a lake.

The names below are the public face of the judge; the module `evaluators.judge` is the evaluator
that judges by them. They load on first use, so that `import evaluators` needs neither torch nor the
store. A fork server does not run this file: it loads the package by its path.
"""

# What is imported for type checkers is what the room exports.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaluators.device.lock import DeviceLock
    from evaluators.judge import Config
    from evaluators.judging.bench import Bench
    from evaluators.judging.case import Case
    from evaluators.sandbox.launcher import Limits
    from evaluators.scheduling.judges.process import JudgeProcess
    from evaluators.scheduling.pool import Pool, Verdict
    from evaluators.scheduling.prebuild import Builder
    from evaluators.service.client import Client, Judgement, SubmittedKernel
    from evaluators.winners.loading import load_best


def __getattr__(name: str) -> object:
    from store.exports import load_lazily

    return load_lazily(__name__, __file__)(name)
