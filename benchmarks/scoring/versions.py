"""Versions of all that decides a score."""

from __future__ import annotations

import functools
import json
from typing import Any


@functools.cache
def _read() -> str:
    from evaluators import judge
    from evaluators.audit import detect
    from evaluators.judging import tolerance

    numbers = {
        name: value
        for name, value in vars(tolerance).items()
        if name.strip("_").isupper() and isinstance(value, int | float)
    }
    types = {str(kind): value for kind, value in tolerance.TOLERANCE.items()}
    return json.dumps(
        {
            "judge": judge.VERSION,
            "detectors": {one.name: one.version for one in detect.load_detectors().values()},
            "tolerances": {**numbers, **types},
        },
        sort_keys=True,
    )


def read_versions() -> dict[str, Any]:
    """Return the version of the judge, those of all detectors, and all tolerances."""
    return json.loads(_read())


def read_verdict_versions() -> dict[str, Any]:
    """Return the versions on which a verdict depends; of the detectors, one refuses kernels."""
    versions = read_versions()
    return versions | {"detectors": {"hostile": versions["detectors"]["hostile"]}}
