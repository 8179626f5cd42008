"""The judge in training: its options as words, and where it judges: here, or on a Ray cluster."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

from evaluators.device import placement
from evaluators.judge import Config
from evaluators.scheduling.pool import Pool
from store.errors import FlywheelError, UnknownName
from trainers.runs.job import parse_values

Protocol: TypeAlias = Literal["full", "training"]

_CLUSTER = "ray:"
"""What a word begins with that names a cluster: ray:auto, ray:HOST:PORT or ray://HOST:PORT."""
_LISTS = {"baselines": ",", "precision": ",", "axes": ";"}
"""Options with several values, and what separates these."""
_FORMER = {"policy": "precision"}
"""Former names of options, which runs of versions before 0.6.0 have stored."""


def parse_options(words: tuple[str, ...], protocol: Protocol = "full") -> Config:
    """Return the judge's Config with KEY=VALUE words set; here, eager alone is the usual baseline.

    >>> parse_options(("calls=3", "baselines=eager,compile")).baselines
    ('eager', 'compile')

    Former names are those of a run that an earlier version began:

    >>> parse_options(("policy=fp32_strict,allow_tf32",)).precision
    ('fp32_strict', 'allow_tf32')

    The address of a Ray cluster may be among the words. The protocol is `protocol` unless they name
    one.

    Raises:
        UnknownName: the judge has no such option; names the nearest.
        FlywheelError: a word has no value.
    """
    known = asdict(Config())
    given: dict[str, Any] = {"baselines": ("eager",), "protocol": protocol}
    options = tuple(word for word in words if not word.startswith(_CLUSTER))
    for word, value in parse_values("judge", options).items():
        name = _FORMER.get(word, word)
        if name not in known:
            raise UnknownName.among("option of judge", name, known)
        given[name] = tuple(str(value).split(_LISTS[name])) if name in _LISTS else value
    return Config(**given)


def choose_places(device: str, words: Sequence[str]) -> str:
    """Return where kernels are judged: a Ray cluster that the words name, or devices of this host.

    auto means the devices that no process trains on, or the first one.

    >>> choose_places("cpu", ("ray:HOST:6379", "precision=fp32_strict"))
    'ray:HOST:6379'

    Raises FlywheelError: the words name two clusters.
    """
    clusters = [word for word in words if word.startswith(_CLUSTER)]
    if len(clusters) > 1:
        raise FlywheelError("--judge names two clusters", "Name one.")
    if clusters or device != "auto":
        return clusters[0] if clusters else device
    there = placement.list_gpus()
    training = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # processes that train on this host
    return ",".join(there[training:] or there[:1]) or "cpu"


def make_pool(lake_url: str | None, place: str, config: Config, workers: int = 1) -> Pool:
    """Return the judges at a place of `choose_places`: `workers` of them on each device."""
    if not place.startswith(_CLUSTER):
        return Pool(lake_url, place, config, workers=workers)
    address = place if "://" in place else place.removeprefix(_CLUSTER)
    return Pool(lake_url, config=config, workers=workers, ray=address)
