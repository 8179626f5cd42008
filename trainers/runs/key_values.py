"""Options given as KEY=VALUE words, for the judge, the reward rule and TRL."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any

from store.errors import FlywheelError


def parse_pairs(option: str, words: Iterable[str]) -> dict[str, str]:
    """Return KEY=VALUE words as a dictionary; the last value of a repeated key counts.

    >>> parse_pairs("judge", ["timing-s=0.1", "baselines=eager"])
    {'timing_s': '0.1', 'baselines': 'eager'}

    Raises:
        FlywheelError: a word has no value; names the option.
    """
    found = {}
    for word in words:
        key, sign, text = word.partition("=")
        if not sign:
            raise FlywheelError(f'--{option} "{word}" has no value', f"Write --{option} KEY=VALUE.")
        found[key.replace("-", "_")] = text
    return found


def parse_values(option: str, words: Iterable[str]) -> dict[str, Any]:
    """Return what `parse_pairs` does, with numbers, true, false and null parsed.

    >>> parse_values("judge", ["timing-s=0.1", "robustness=false", "baselines=eager"])
    {'timing_s': 0.1, 'robustness': False, 'baselines': 'eager'}
    """
    found: dict[str, Any] = dict(parse_pairs(option, words))
    for name, text in found.items():
        with contextlib.suppress(ValueError):
            found[name] = json.loads(text)
    return found
