"""A service whose worker the tests play."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from judge_services import FakeWorker, Service, write_lake


@pytest.fixture(scope="module")
def service(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service without judges of its own."""
    lake = write_lake(tmp_path_factory.mktemp("service") / "lake", empty_lake)
    with Service(lake, "--device", "none") as started:
        yield started


@pytest.fixture(scope="module")
def worker(service: Service) -> FakeWorker:
    """Return the worker of the service."""
    return FakeWorker(service)
