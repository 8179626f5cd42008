"""Published aggregate figures with their sources, as published.yaml lists them; needs no path.

Give the path of a YAML file of the same form to import your own collection of figures. Each file is
stored as one bundle.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml

import store
from store.errors import ImportFailed
from store.ids import content_id
from store.importers.reading import pieces, sources
from store.importers.reading.rows import BundleRows

NAME = "published"
BUILT_IN = Path(__file__).with_suffix(".yaml")
_SPEEDUPS = ("mean", "max", "p75", "p50", "p25")
_COUNTS = ("success", "faster_than_1.00", "faster_than_1.01", "improper_timing")
_ABOUT = ("policy", "gpu", "baseline", "level", "of", "at")
TRUST = ("primary", "primary-abstract", "secondary")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the published importer."""

    trust: Literal["primary", "primary-abstract", "secondary"] = "secondary"
    """Weakest kind of source to import: the authors' text, their abstract, or notes and news."""


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle for the file of figures."""
    file = path or BUILT_IN
    data = sources.read_bytes(file, file.parent)
    text = sources.decode(data, file)
    try:
        document = _mapping(yaml.load(text, Loader=yaml.CSafeLoader), str(file))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ImportFailed(f"{file} is not YAML: {error}") from error
    policies = _mapping(document.get("policies", {}), f"{file}, policies")
    listed = _sequence(document.get("sources"), f"{file}, sources")

    def add(rows: BundleRows) -> str:
        for policy_id, about in policies.items():
            row = {**_mapping(about, policy_id), "policy_id": policy_id}
            rows.add("policies", (policy_id,), row)
        for number, source in enumerate(listed, start=1):
            about = _mapping(source, f"{file}, source {number}")
            _add_source(rows, about, file, TRUST.index(config.trust))
        return f"{len(rows.tables.get('claims', {}))} figures"

    content = sources.digest([(NAME, data)])
    reading = pieces.Import(lake, NAME, config)
    yield reading.make_bundle(content, f"{NAME} {file.name}", file.name, add)


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ImportFailed(f"{where}: a mapping is expected", f"{BUILT_IN.name} shows the form.")
    return {str(name): one for name, one in cast("Mapping[object, Any]", value).items()}


def _sequence(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ImportFailed(f"{where}: a list is expected", f"{BUILT_IN.name} shows the form.")
    return cast("list[Any]", value)


def _add_source(rows: BundleRows, source: Mapping[str, Any], file: Path, weakest: int) -> None:
    """Add the figures of one source, unless it is weaker than --trust allows."""
    for name in ("source", "revision", "trust"):
        if not isinstance(source.get(name), str):
            raise ImportFailed(f'{file}: a source has no text for "{name}"')
    where = f"{file}, {source['source']} {source['revision']}"
    if source["trust"] not in TRUST:
        raise ImportFailed(f"{where}: trust is one of {', '.join(TRUST)}")
    if TRUST.index(source["trust"]) > weakest:
        return
    day = source.get("published_on")
    if day is not None and not isinstance(day, datetime.date):
        raise ImportFailed(f"{where}: published_on is a day such as 2025-07-18")
    suite = _mapping(source.get("suite", {}), where)
    figures = _sequence(source.get("claims"), where)
    for number, figure in enumerate(figures, start=1):
        entry = f"{where}, claim {number}"
        claim = _mapping(figure, entry)
        common = {
            "policy_id": claim.get("policy", source.get("policy")),
            "gpu": claim.get("gpu"),
            "baseline": claim.get("baseline"),
            "of": claim.get("of"),
            "suite": suite.get("name"),
            "suite_revision": suite.get("revision"),
            "level": claim.get("level"),
            "quote": f"{claim.get('at')} [{source['trust']}]",
            "source": source["source"],
            "source_revision": source["revision"],
            "license": source.get("license"),
        }
        for name, value in claim.items():
            if name in _ABOUT:
                continue
            if name not in (*_SPEEDUPS, *_COUNTS):
                known = ", ".join((*_SPEEDUPS, *_COUNTS, *_ABOUT))
                raise ImportFailed(f'{entry}: "{name}" is not known', f"There are: {known}.")
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value):
                raise ImportFailed(f"{entry}: {name} is {value!a:.40}, not a number")
            # `mean` is stored as mean_speedup, for example.
            metric = f"{name}_speedup" if name in _SPEEDUPS else name
            row: dict[str, Any] = {**common, "metric": metric, "value": float(value)}
            claim_id = content_id("claim", json.dumps(row, sort_keys=True))
            row |= {"claim_id": claim_id, "run_id": rows.run_id, "published_on": day}
            rows.add("claims", (claim_id,), row)
