"""A Hub on loopback, the client pointed at a cache of the test's own, and a lake to publish."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from hub import lakes
from hub.lakes import Edition
from hub.server import TOKEN, HubServer

import store
from store.hub import client as hubs
from store.hub.client import Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish


@pytest.fixture(autouse=True)
def _own_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the client's cache to the test, and let nobody wait."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hf-cache"))
    monkeypatch.setattr(hubs, "PAUSE_S", 0.01)
    monkeypatch.delenv("HF_TOKEN", raising=False)


@pytest.fixture(autouse=True, scope="session")
def _disable_xet() -> Iterator[None]:
    """Send whole files: the chunk store behind the Hub is not what runs here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield


@pytest.fixture
def server() -> Iterator[HubServer]:
    with HubServer() as running:
        yield running


@pytest.fixture
def hub(server: HubServer) -> Hub:
    return Hub(server.url, TOKEN, timeout_s=120)


@pytest.fixture(scope="session")
def rich_lake(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Path:
    """Return the folder of a small lake, to be copied and never written to."""
    folder = tmp_path_factory.mktemp("rich") / "lake"
    shutil.copytree(empty_lake, folder)
    with store.writer(str(folder), author="tests") as writer:
        writer.append(lakes.rows(), "rows with much to hide")
    return folder


@pytest.fixture(scope="session")
def edition(rich_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Edition:
    """Return that lake as it was published once, for tests that only look at it."""
    lake = str(shutil.copytree(rich_lake, tmp_path_factory.mktemp("published") / "lake"))
    with HubServer() as server, pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", f"{lake}-cache")
        warnings.filterwarnings("ignore", "Use 'content=", DeprecationWarning)
        done = publish(lake, "lab/kernels", Options(tag="v1"), hub=Hub(server.url, TOKEN))
        return Edition(lake=lake, files=server.files("lab/kernels"), done=done)


@pytest.fixture
def rich_url(tmp_path: Path, rich_lake: Path) -> str:
    """Return a copy of a small lake."""
    return str(shutil.copytree(rich_lake, tmp_path / "rich"))
