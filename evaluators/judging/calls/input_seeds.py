"""The seeds of inputs: each call's inputs follow from a secret seed that is drawn for it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evaluators.judging.case import Evidence
from evaluators.references.task import Expected, Reference, call_seed

_SEED_BITS = 48


@dataclass(frozen=True)
class Question:
    """Inputs with the expected answer."""

    inputs: list[Any]
    expected: Expected
    seed: int
    """Seed of the random numbers of the call; the candidate may know it."""


def draw_seed() -> int:
    """Return a new secret seed of inputs."""
    return secrets.randbits(_SEED_BITS)


def draw_question(
    reference: Reference,
    evidence: Evidence,
    change: Callable[[list[Any]], list[Any]] | None = None,
) -> Question:
    """Return a question under a new secret seed, which the evidence records.

    change: makes the inputs of the question from those of the seed.

    Raises ReferenceFailed.
    """
    seed = draw_seed()
    evidence.seeds.append(seed)
    return repeat_question(reference, seed, change)


def repeat_question(
    reference: Reference, seed: int, change: Callable[[list[Any]], list[Any]] | None = None
) -> Question:
    """Return the question of a seed; see `draw_question`. Raises ReferenceFailed."""
    inputs = reference.inputs(seed)
    if change is not None:
        inputs = change(inputs)
    return Question(inputs, reference.answer(inputs, call_seed(seed)), call_seed(seed))
