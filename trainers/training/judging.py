"""The judge in training: its options as words, and where it judges: devices here, or a service."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, TypeAlias

from evaluators.judge import Config
from evaluators.scheduling.contract import get_policy
from evaluators.scheduling.pool import Pool
from evaluators.service.client import Client
from evaluators.service.remote_pool import RemotePool
from store.errors import FlywheelError, UnknownName
from trainers.runs import key_values

Protocol: TypeAlias = Literal["full", "training"]

_SERVICE = ("http://", "https://")
_LISTS = {"baselines": ",", "policy": ",", "axes": ";"}
"""Options with several values, and what separates these."""


def parse_options(words: tuple[str, ...], protocol: Protocol = "full") -> Config:
    """Return the judge's Config with KEY=VALUE words set; here, eager alone is the usual baseline.

    >>> parse_options(("calls=3", "baselines=eager,compile")).baselines
    ('eager', 'compile')

    Args:
        words: KEY=VALUE, or the URL of a judge service, which judges by the full protocol.
        protocol: Protocol unless the words name one.

    Raises:
        UnknownName: the judge has no such option; names the nearest.
        FlywheelError: a word has no value.
    """
    known = asdict(Config())
    here = {"baselines": ("eager",), "protocol": protocol}
    given: dict[str, Any] = {} if find_service(words) else here
    options = tuple(word for word in words if not word.startswith(_SERVICE))
    for name, value in key_values.parse_values("judge", options).items():
        if name not in known:
            raise UnknownName.among("option of judge", name, known)
        given[name] = tuple(str(value).split(_LISTS[name])) if name in _LISTS else value
    return Config(**given)


def find_service(words: Sequence[str]) -> str | None:
    """Return the URL of a judge service among words, or None.

    >>> find_service(("http://judge:8770", "policy=fp32_strict"))
    'http://judge:8770'

    Raises:
        FlywheelError: there are two.
    """
    urls = [word for word in words if word.startswith(_SERVICE)]
    if len(urls) > 1:
        raise FlywheelError("--judge names two services", "Name one.")
    return urls[0] if urls else None


def choose_places(device: str, words: Sequence[str]) -> str:
    """Return where kernels are judged: the URL of a service, or devices of this host."""
    return find_service(words) or choose_devices(device)


def make_pool(
    lake_url: str | None, place: str, config: Config, workers: int = 1
) -> Pool | RemotePool:
    """Return the judges at a place of `choose_places`: `workers` of them on each device.

    Raises:
        FlywheelError: options that a judge service does not take from its clients.
    """
    if not place.startswith(_SERVICE):
        return Pool(lake_url, place, config, workers=workers)
    usual = asdict(Config(policy=config.policy))
    odd = ["workers"] if workers != 1 else []
    odd += [name for name, value in asdict(config).items() if value != usual[name]]
    if odd:
        raise FlywheelError(
            f"a judge service does not take {odd[0]} from its clients",
            "Give it to `evaluators serve`. Clients choose the policy.",
        )
    return RemotePool(lake_url, Client(place, policy=get_policy(config)))


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


def _count_local_processes() -> int:
    """Return how many processes train on this host, each on a GPU where there are any."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
