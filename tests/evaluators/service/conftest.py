"""A service whose judge the tests play."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from judge_services import Service, ToldJudges, wait_until, write_lake


@pytest.fixture(scope="session")
def judges() -> Iterator[ToldJudges]:
    """Yield the judge of the service."""
    told = ToldJudges()
    yield told
    told.close()


@pytest.fixture(scope="session")
def service(
    empty_lake: Path, judges: ToldJudges, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """Yield a service whose judge the tests of all files play; a start takes seconds."""
    lake = write_lake(tmp_path_factory.mktemp("service") / "lake", empty_lake)
    with Service(lake, "--on", "cpu", judges=judges) as started:
        wait_until(started.has_device)
        yield started
