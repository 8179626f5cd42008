"""Published aggregate figures with their sources, as published.yaml lists them; needs no path.

Give the path of a YAML file of the same form to import your own collection of figures. Each file is
stored as one bundle.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import store
from store.errors import ImportFailed
from store.foreign import text_files
from store.ids import content_id
from store.importers.reading import pieces, sources

NAME = "published"
BUILT_IN = Path(__file__).with_suffix(".yaml")
_SPEEDUPS = ("mean", "max", "p75", "p50", "p25", "case")
_COUNTS = ("success", "faster_than_1.00", "faster_than_1.01", "improper_timing")
_ABOUT = ("policy", "gpu", "baseline", "level", "of", "at")
TRUST = ("primary", "primary-abstract", "secondary")


@dataclass(frozen=True, kw_only=True)
class Config:
    trust: Literal["primary", "primary-abstract", "secondary"] = "secondary"
    """Weakest kind of source to import: the authors' text, their abstract, or notes and news."""


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle for the file of figures."""
    file = path or BUILT_IN
    data = sources.read_bytes(file, file.parent)
    document = text_files.parse_yaml(sources.decode(data, file), str(file))

    reading = pieces.Import(lake, NAME, config)
    rows = reading.start(sources.digest([(NAME, data)]))
    message = f"{NAME} {file.name}"
    if rows.is_new:
        policies = document.inner("policies")
        for policy_id in policies.values:
            row = {**policies.inner(policy_id).values, "policy_id": policy_id}
            rows.add("policies", (policy_id,), row)
        for source in document.list("sources"):
            named, revision = source.require_text("source"), source.require_text("revision")
            trust, day = source.require_text("trust"), source.values.get("published_on")
            if trust not in TRUST:
                raise source.refuse("trust", f"one of {', '.join(TRUST)}")
            if TRUST.index(trust) > TRUST.index(config.trust):
                continue
            if day is not None and not isinstance(day, datetime.date):
                raise source.refuse("published_on", "a day such as 2025-07-18")
            suite = source.inner("suite").values
            for figure in source.list("claims"):
                claim = figure.values
                common = {
                    "policy_id": claim.get("policy", source.values.get("policy")),
                    "gpu": claim.get("gpu"),
                    "baseline": claim.get("baseline"),
                    "of": claim.get("of"),
                    "suite": suite.get("name"),
                    "suite_revision": suite.get("revision"),
                    "level": claim.get("level"),
                    "quote": f"{claim.get('at')} [{trust}]",
                    "source": named,
                    "source_revision": revision,
                    "license": source.values.get("license"),
                }
                for name in claim:
                    if name in _ABOUT:
                        continue
                    if name not in (*_SPEEDUPS, *_COUNTS):
                        known = ", ".join((*_SPEEDUPS, *_COUNTS, *_ABOUT))
                        raise ImportFailed(
                            f'{figure.where}: "{name}" is not known', f"There are: {known}."
                        )
                    value = figure.number(name)
                    if value is None:
                        raise figure.refuse(name, "a number")
                    # `mean` is stored as mean_speedup, for example.
                    metric = f"{name}_speedup" if name in _SPEEDUPS else name
                    row: dict[str, Any] = {**common, "metric": metric, "value": value}
                    claim_id = content_id("claim", json.dumps(row, sort_keys=True))
                    row |= {"claim_id": claim_id, "run_id": rows.run_id, "published_on": day}
                    rows.add("claims", (claim_id,), row)
        message += f": {len(rows.tables.get('claims', {}))} figures"
    yield reading.finish(rows, message, file.name)
