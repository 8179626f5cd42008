"""Filters that several pages have."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from store.explore.page.model import Choice

if TYPE_CHECKING:
    from store.explore.page.view import View

ALL = "all"
ANY = "any"


async def list_choices(view: View, *names: str) -> list[Choice]:
    """Return the filters with some names.

    The names are suite, level, device, baseline, policy, family, class, clock and precision.
    """
    return list(await asyncio.gather(*(_make_choice(view, name) for name in names)))


async def _make_choice(view: View, name: str) -> Choice:
    files = {"policy": "policies", "class": "classes", "family": "families"}
    options = await view.options(f"choices/{files.get(name, f'{name}s')}")
    return Choice(name=name, label=name.capitalize(), options=options)
