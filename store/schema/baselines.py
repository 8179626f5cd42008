"""The baselines of catalog.yaml: ways to run a task's own module that kernels are compared with.

catalog.yaml declares each baseline once. Columns, choices of options, words in prompts, inputs of
rewards and docs/tables.md derive from it; evaluators/worker/baselines.py implements them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from store.errors import CatalogError
from store.schema import catalog

if TYPE_CHECKING:
    Baseline: TypeAlias = str
    """Name of a baseline of the catalog."""
else:
    from typing import Literal

    # Options show these values as their choices. A command that cannot read the catalog says so
    # once it runs.
    try:
        Baseline = Literal[*catalog.load().baselines] if catalog.load().baselines else str
    except CatalogError:
        Baseline = str


def list_baselines() -> tuple[str, ...]:
    """Return the names of the catalog's baselines, the plainest first.

    >>> list_baselines()[:2]
    ('eager', 'compile')
    """
    return tuple(catalog.load().baselines)


def describe_baseline(name: str) -> str:
    """Return the words for a baseline in prompts.

    >>> describe_baseline("eager")
    'PyTorch eager'
    """
    return catalog.load().baselines[name].words
