"""Trainers improve policies on datasets of the lake and append all that they try and become.

A user's own trainer can use the names below; each is imported on first use.
"""

# What is imported for type checkers is what the room exports.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

from typing import TYPE_CHECKING

from store.exports import load_lazily

if TYPE_CHECKING:
    from trainers.models.loading import compute_policy_id, find_model
    from trainers.policies.interface import Completion, Policy, Sampling, Serving, open_policy
    from trainers.runs.job import Job, Training
    from trainers.runs.recording import Run, begin_run

__getattr__ = load_lazily(__name__, __file__)
