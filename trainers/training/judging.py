"""The judge in training: its options as words, and the devices that it uses."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from evaluators.judge import Config
from store.errors import UnknownName
from trainers.runs import key_values


def parse_options(words: tuple[str, ...]) -> Config:
    """Return the judge's Config with KEY=VALUE words set; eager alone is the baseline by default.

    >>> parse_options(("calls=3", "baselines=eager,compile")).baselines
    ('eager', 'compile')

    Raises:
        UnknownName: the judge has no such option; names the nearest.
        FlywheelError: a word has no value.
    """
    known = asdict(Config())
    given: dict[str, Any] = {"baselines": ("eager",)}
    for name, value in key_values.parse_values("judge", words).items():
        if name not in known:
            raise UnknownName.among("option of judge", name, known)
        given[name] = tuple(str(value).split(",")) if name == "baselines" else value
    return Config(**given)


def choose_devices(device: str) -> str:
    """Return the devices to judge on; auto means those that no process trains on, or the first.

    >>> choose_devices("cpu")
    'cpu'
    """
    if device != "auto":
        return device
    from evaluators.device import placement

    there = placement.list_gpus()
    return ",".join(there[_count_local_processes() :] or there[:1]) or "cpu"


def has_own_devices(places: str) -> bool:
    """Whether kernels are judged on other devices than those that this host trains on.

    >>> has_own_devices("cuda:2,cuda:3"), has_own_devices("cuda:0")
    (True, False)
    """
    trained = {f"cuda:{rank}" for rank in range(_count_local_processes())}
    return not trained & set(places.split(","))


def _count_local_processes() -> int:
    """Return how many processes train on this host, each on a GPU where there are any."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
