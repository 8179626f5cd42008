"""The rows of a question of the explorer and the report."""

from __future__ import annotations

from typing import Any

import store
from store.explore.page.model import SQL, bind_question


def ask(lake: store.Lake, question: str, **values: Any) -> list[dict[str, Any]]:
    """Return the rows of a file of `store/explore/sql`, which is named without its ending."""
    return lake.sql(bind_question(SQL / f"{question}.sql", values).sql).rows()
