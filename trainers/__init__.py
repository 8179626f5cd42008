"""Trainers improve policies on datasets of the lake and append all that they try and become.

A user's own trainer can use the names below; each is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainers.models.loading import compute_policy_id, find_model
    from trainers.policies.interface import Completion, Policy, Sampling, Serving, open_policy
    from trainers.runs.job import Job, Training
    from trainers.runs.recording import Run, begin_run

__all__ = [
    "Completion",
    "Job",
    "Policy",
    "Run",
    "Sampling",
    "Serving",
    "Training",
    "begin_run",
    "compute_policy_id",
    "find_model",
    "open_policy",
]

_MODULES = {
    "trainers.models.loading": ("compute_policy_id", "find_model"),
    "trainers.policies.interface": ("Completion", "Policy", "Sampling", "Serving", "open_policy"),
    "trainers.runs.job": ("Job", "Training"),
    "trainers.runs.recording": ("Run", "begin_run"),
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
