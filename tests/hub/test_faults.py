"""What the Hub and the line may do wrong: nothing is lost, and nothing is published half."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import commands
import pytest
from hub.server import TOKEN, Fault, HubServer, sha256

import store
from store.errors import FlywheelError, ImportFailed
from store.hub.client import TRIES, Hub
from store.hub.edition_writer import Options
from store.hub.publish import publish
from store.hub.pull import pull

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
REPO = "lab/kernels"
FEW = Options(tag="v1", tables=("splits",))


def is_whole(server: HubServer) -> bool:
    """Whether the repository holds one edition in one commit, and its tag."""
    repo = server.repos[REPO]
    return (
        len(repo.commits) == 2
        and repo.tags == {"v1": repo.main}
        and "flywheel.json" in server.files(REPO)
    )


PASSING = [Fault("POST", "/commit/", "lost")]
SLOW = [
    Fault("POST", "/commit/", "status", 500),
    Fault("GET", f"/api/datasets/{REPO}$", "status", 503),
    Fault("POST", "/api/repos/create", "status", 500),
    Fault("POST", "/tag/", "status", 502),
    Fault("POST", "/tag/", "lost"),
    Fault("POST", "/preupload/", "status", 500),
    Fault("POST", "/objects/batch", "status", 500),
    Fault("POST", "/objects/batch", "cut"),
    Fault("PUT", "/lfs/", "status", 500, times=2),
    Fault("PUT", "/lfs/", "cut"),
    Fault("PUT", "/lfs/", "lost"),
    Fault("POST", "/commit/", "cut"),
    Fault("GET", "/tree/", "cut"),
    Fault("GET", "/tree/", "status", 500),
    Fault("GET", "/tree/", "page"),
    Fault("POST", "/preupload/", "page"),
    Fault("POST", "/commit/", "hang", 25),
    Fault("PUT", "/lfs/", "hang", 25),
    Fault("POST", "/tag/", "hang", 25),
]


def _name(fault: Fault) -> str:
    return f"{fault.method} {fault.path.split('/')[1]} {fault.kind}"


@pytest.mark.parametrize(
    "fault",
    [
        *PASSING[2:4],
        *(pytest.param(one, marks=pytest.mark.slow) for one in PASSING[:2] + PASSING[4:]),
    ]
    + [pytest.param(one, marks=pytest.mark.slow) for one in SLOW],
    ids=_name,
)
def test_what_passes_is_waited_for(fault: Fault, rich_url: str, server: HubServer) -> None:
    server.faults.append(replace(fault))
    timeout_s = 20 if fault.kind == "hang" else 120
    done = publish(rich_url, REPO, FEW, hub=Hub(server.url, TOKEN, timeout_s=timeout_s))
    assert server.faults == []
    assert is_whole(server)
    assert done.revision == server.repos[REPO].main
    # Only a file whose arrival was not confirmed is sent again.
    again = len(server.sent) - len(set(server.sent))
    assert again == (fault.kind == "lost" and fault.method == "PUT")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/commit/", "/lfs/"])
def test_what_does_not_pass_publishes_nothing_and_the_next_run_goes_on(
    path: str, rich_url: str, server: HubServer, hub: Hub
) -> None:
    method = "PUT" if path == "/lfs/" else "POST"
    # Two files arrive, then every request fails.
    server.faults.append(Fault(method, path, "status", 500, times=99, skip=2 * (path == "/lfs/")))
    with pytest.raises(FlywheelError, match="nothing was published"):
        publish(rich_url, REPO, FEW, hub=hub)
    assert server.faults
    assert len(server.repos[REPO].commits) == 1
    assert server.repos[REPO].tags == {}
    arrived = len(server.sent)
    assert arrived
    server.faults.clear()
    with store.writer(rich_url, author="tests") as writer:
        writer.append({"lakes": [{"lake_id": "x", "name": "meanwhile"}]}, "rows that came later")
    publish(rich_url, REPO, FEW, hub=hub)
    assert is_whole(server)
    assert len(server.sent) == len(set(server.sent)) >= arrived


@pytest.mark.slow
def test_a_commit_of_somebody_else_is_not_built_over(
    rich_url: str, server: HubServer, hub: Hub
) -> None:
    server.faults.append(Fault("POST", "/commit/", "status", 412))
    with pytest.raises(FlywheelError, match="nothing was published") as told:
        publish(rich_url, REPO, FEW, hub=hub)
    assert "meanwhile" in str(told.value)
    assert len(server.repos[REPO].commits) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Fault("GET", "/api/datasets/", "page"), ("answer cannot be read", "HF_ENDPOINT")),
        (Fault("GET", "/api/datasets/", "status", 422), ("HTTP 422: fault 422", "refuses")),
        (Fault("POST", "/commit/", "status", 429), ("HTTP 429: fault 429", "in some minutes")),
        (Fault("POST", "/commit/", "status", 403), ("HTTP 403: fault 403", "HF_TOKEN")),
    ],
    ids=lambda one: _name(one) if isinstance(one, Fault) else "",
)
def test_an_answer_that_does_not_change_is_reported_with_the_reason_of_the_server(
    fault: Fault, words: tuple[str, str], rich_url: str, server: HubServer, hub: Hub
) -> None:
    server.faults.append(replace(fault, times=99))
    with pytest.raises(FlywheelError) as told:
        publish(rich_url, REPO, FEW, hub=hub)
    assert all(word in str(told.value) for word in words), told.value
    assert REPO not in server.repos or server.repos[REPO].tags == {}


@pytest.mark.slow
@pytest.mark.parametrize("token", ["hf_" + "x" * 34, pytest.param(None, marks=pytest.mark.slow)])
def test_a_wrong_token_is_told_and_not_shown(
    token: str | None, rich_url: str, server: HubServer
) -> None:
    with pytest.raises(FlywheelError, match="HF_TOKEN") as told:
        publish(rich_url, REPO, FEW, hub=Hub(server.url, token))
    assert token is None or token not in str(told.value)
    assert server.repos == {}


def test_the_command_exits_1_without_the_token_in_its_words(
    rich_url: str, server: HubServer, tmp_path: Path
) -> None:
    wrong = "hf_" + "z" * 34
    environment = {"HF_ENDPOINT": server.url, "HF_TOKEN": wrong, "HF_HOME": str(tmp_path / "home")}
    ended = commands.run(
        ["store", "pull", REPO, "--lake", rich_url], cwd=tmp_path, env=os.environ | environment
    )
    assert ended.returncode == 1
    assert "401" in ended.stderr or "does not accept the token" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert wrong not in ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def edition_server(rich_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    lake = str(shutil.copytree(rich_lake, tmp_path_factory.mktemp("published") / "lake"))
    with HubServer() as server:
        publish(lake, REPO, Options(tag="v1", tables=("findings",)), hub=Hub(server.url, TOKEN))
        return server.files(REPO)


@pytest.mark.slow
def test_a_damaged_file_is_found_and_fetched_again(
    edition_server: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.hold(REPO, edition_server)
    mine = str(tmp_path / "mine")
    server.faults.append(Fault("GET", "resolve/.*kernels", "corrupt"))
    with pytest.raises(ImportFailed, match=r"kernels.*is damaged"):
        pull(mine, REPO, hub=hub)
    assert server.faults == []
    assert not Path(mine).exists()
    assert pull(mine, REPO, hub=hub).rows["kernels"] == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        Fault("GET", "resolve/.*kernels", "cut"),
        pytest.param(Fault("GET", "resolve/.*kernels", "cut", times=2), marks=pytest.mark.slow),
        pytest.param(Fault("GET", "resolve/.*kernels", "status", 500), marks=pytest.mark.slow),
        pytest.param(Fault("HEAD", "resolve/.*kernels", "status", 503), marks=pytest.mark.slow),
        pytest.param(Fault("GET", "/tree/", "status", 500), marks=pytest.mark.slow),
    ],
    ids=_name,
)
def test_a_download_that_is_cut_goes_on(
    fault: Fault, edition_server: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.hold(REPO, edition_server)
    server.faults.append(replace(fault))
    assert pull(str(tmp_path / "mine"), REPO, hub=hub).rows["kernels"] == 4
    assert server.faults == []


@pytest.mark.slow
def test_a_disk_that_is_full_is_named_and_the_next_pull_goes_on(
    edition_server: dict[str, bytes], server: HubServer, tmp_path: Path
) -> None:
    server.hold(REPO, edition_server)
    pull_it = [sys.executable, "-m", "store", "pull", REPO, "--lake", str(tmp_path / "mine")]
    environment = os.environ | {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")}
    environment |= {"HF_HUB_DISABLE_XET": "1"}
    ended = subprocess.run(
        ["bash", "-c", 'ulimit -f 1; exec "$@"', "-", *pull_it],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 1
    assert str(tmp_path / "home") in ended.stderr
    assert "Raise the limit" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "mine").exists()
    ended = subprocess.run(pull_it, env=environment, capture_output=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_a_download_that_never_works_merges_nothing(
    edition_server: dict[str, bytes], server: HubServer, hub: Hub, tmp_path: Path
) -> None:
    server.hold(REPO, edition_server)
    server.faults.append(Fault("GET", "resolve/.*kernels", "status", 500, times=99 * TRIES))
    mine = tmp_path / "mine"
    with pytest.raises(FlywheelError, match="cannot be downloaded"):
        pull(str(mine), REPO, hub=hub)
    assert not mine.exists()
    assert sha256(edition_server["flywheel.json"])
