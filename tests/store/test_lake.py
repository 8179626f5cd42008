"""Connections to a lake."""

from __future__ import annotations

import duckdb
import pytest

from store.lake import connect


def test_only_the_installed_extensions_go_unverified() -> None:
    with connect() as connection:
        setting = "SELECT current_setting('allow_unsigned_extensions')"
        assert connection.execute(setting).fetchone() == (False,)
        with pytest.raises(duckdb.Error, match="Cannot change"):
            connection.execute("SET allow_unsigned_extensions = true")
