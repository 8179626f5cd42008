"""Places that cannot hold a lake, or no longer: each error says what to do, and nothing is lost."""

from __future__ import annotations

import itertools
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import builders
import pytest
from object_storage import BUCKET, ObjectStorage
from postgres_server import PostgresServer
from storage_proxy import Proxy

import store
from store.errors import CatalogError, LakeUnreachable
from store.lake import attachment, host
from store.lake.location import Location
from store.upkeep import integrity

pytestmark = pytest.mark.folder
NUMBERS = itertools.count()
REFUSAL = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{code}</Code><Message>{words}</Message></Error>"""
EXPIRED = ("ExpiredToken", "The provided token has expired.")
SKEWED = (
    "RequestTimeTooSkewed",
    "The difference between the request time and the server's time is too large.",
)
NFS = "999 31 0:53 / {point} rw,relatime shared:1 - nfs4 server:/export rw,vers=4.2,addr=10.0.0.1"
FILL_DISK = """
import sys
from pathlib import Path
import store
from store.errors import LakeUnreachable
from store.lake.location import Location
from store.upkeep import integrity

folder = Path(sys.argv[1])
def policies(name, count):
    rows = [f"{name}-{n}" for n in range(count)]
    return {"policies": [{"policy_id": r, "name": r, "kind": "person"} for r in rows]}

with store.writer(str(folder / "lake"), author="tests") as writer:
    writer.append(policies("a", 300), "before")
    filler = folder / "filler"
    with open(filler, "wb", 0) as handle:
        try:
            while True:
                handle.write(bytes(1 << 12))
        except OSError:
            pass
    for wait in (False, True):
        try:
            writer.append(policies(f"b{wait}", 3000), "while full", wait=wait)
            print("stored")
        except LakeUnreachable as error:
            print("REFUSED", error)
    filler.unlink()
    writer.append(policies("c", 300), "after")
with store.open(str(folder / "lake")) as lake:
    counts = lake.sql("SELECT policy_id[:1] AS p, count(*) AS n FROM policies GROUP BY p").rows()
print({row["p"]: row["n"] for row in counts}.get("a"), "problems", integrity.check(lake.location))
"""

APPEND = """
import sys
import store
from store.errors import LakeUnreachable

row = {"policy_id": "limited", "name": "limited", "kind": "person"}
try:
    with store.writer(sys.argv[1], author="tests") as writer:
        writer.append({"policies": [row]}, "one")
    print("stored")
except LakeUnreachable as error:
    print(error)
"""


def answer(code: str, words: str) -> bytes:
    body = REFUSAL.format(code=code, words=words).encode()
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}"
    return f"{head}\r\nConnection: close\r\n\r\n".encode() + body


def test_a_lake_of_another_version_of_the_format_says_what_to_install(
    empty_lake: Path, lake_url: str
) -> None:
    shutil.copytree(empty_lake, lake_url)
    catalog = sqlite3.connect(Path(lake_url) / "catalog.sqlite")
    catalog.execute("UPDATE ducklake_metadata SET value = '9.9' WHERE key = 'version'")
    catalog.commit()
    catalog.close()
    with pytest.raises(LakeUnreachable, match=r"version 9\.9 .* reads 1\.0\nInstall"):
        store.open(lake_url)
    with pytest.raises(LakeUnreachable, match=r"version 9\.9 .* reads 1\.0\nInstall"):
        store.writer(lake_url, author="tests")


def test_a_lake_that_a_newer_version_migrated_names_that_version(
    writer: store.Writer, lake_url: str, tmp_path: Path
) -> None:
    """The lake gets a column and a number that this version lacks, as a newer one would."""
    writer.close()
    connection = attachment.connect()
    attachment.attach(connection, Location.of(lake_url), writable=True)
    connection.execute("CALL lake.set_option('require_commit_message', false)")
    connection.execute("ALTER TABLE lake.kernels ADD COLUMN mood VARCHAR")
    connection.execute(
        "UPDATE lake.catalogs SET version = '9.9.0', "
        "definition = json_merge_patch(definition, '{\"schema\": 99}')"
    )
    connection.close()
    with pytest.raises(CatalogError, match=r"written by kernel-flywheel 9\.9\.0 \(schema 99\)"):
        store.writer(lake_url, author="tests")
    with store.open(lake_url) as lake:  # reading goes on
        assert lake.sql("FROM kernels").rows() == []


def test_a_folder_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    table = Path("/proc/self/mountinfo").read_text()
    assert host.find_filesystem(Path("/proc/self")) == "proc"
    local = host.find_filesystem(tmp_path / "new", table)
    assert local is not None
    assert not host.NETWORK.fullmatch(local)
    point = tmp_path / "a share"
    shared = table + NFS.format(point=str(point).replace(" ", "\\040")) + "\n"
    assert host.find_filesystem(point / "lake", shared) == "nfs4"
    assert host.find_filesystem(tmp_path / "a shared disk", shared) == local
    for kind in ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"):
        assert host.NETWORK.fullmatch(kind)
    host.require_local(tmp_path)


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    mount = f'mount -t tmpfs -o size=6m tmpfs {tmp_path} && exec "$@"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], check=False).returncode
    ):
        pytest.skip("no small file system can be mounted here")
    done = subprocess.run(
        [*command, sys.executable, "-c", FILL_DISK, str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "REFUSED" in done.stdout
    assert "Free space" in done.stdout
    assert done.stdout.endswith("300 problems []\n")


def run_limited(kilobytes: int, url: str, code: str) -> str:
    """Run Python code that may write no file beyond a size; return what it prints."""
    limit = f'ulimit -f {2 * kilobytes} && exec "$@"'  # in units of 512 bytes
    done = subprocess.run(
        ["sh", "-c", limit, "sh", sys.executable, "-c", code, url],
        capture_output=True, text=True, check=False, env=os.environ | {"POSIXLY_CORRECT": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_lake_that_fits_in_part_is_completed_later(tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    assert "run this again" in run_limited(150, url, APPEND)
    with store.writer(url, author="tests") as writer:
        writer.append({"policies": [builders.policy("one")]}, "one")
    assert integrity.check(Location.of(url)) == []


@pytest.mark.slow
def test_no_room_for_the_key_index_loses_nothing(writer: store.Writer) -> None:
    location = writer.location
    writer.close()
    location.key_index.unlink(missing_ok=True)
    said = run_limited(48, location.url, APPEND)
    assert f"{location.key_index}\n" in said
    assert "Nothing is lost" in said
    with store.writer(location.url, author="tests") as again:
        again.flush()
    with store.open(location.url) as lake:
        assert lake.sql("SELECT name FROM policies").rows() == [{"name": "limited"}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("refusal", "words"),
    [(EXPIRED, r"have expired\nRenew them.*Nothing is lost"), (SKEWED, r"clock is off\nSet the")],
)
def test_expired_credentials_and_a_wrong_clock_are_named_and_lose_nothing(
    refusal: tuple[str, str],
    words: str,
    server: PostgresServer,
    storage: ObjectStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy = Proxy(storage.endpoint)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in (storage.environment() | {"AWS_ENDPOINT_URL": proxy.endpoint}).items():
        monkeypatch.setenv(name, value)
    name = f"bad{os.getpid()}_{next(NUMBERS)}"
    url = server.build_url(name, f"s3://{BUCKET}/{name}")
    many = {"policies": [builders.policy(f"p{n}") for n in range(200)]}
    with store.writer(url, author="tests") as writer:
        proxy.answer = answer(*refusal)
        with pytest.raises(LakeUnreachable, match=words):
            writer.append(many, "many")
        with pytest.raises(LakeUnreachable, match="aws s3 ls"):  # whose answer has no text
            store.writer(url, author="tests")
        proxy.answer = None
        writer.flush()
    with store.open(url) as lake:
        assert lake.sql("SELECT count(*) AS n FROM policies").rows() == [{"n": 200}]
    assert integrity.check(Location.of(url)) == []
    proxy.end()


def test_the_clock_of_a_host_does_not_decide_which_tag_is_the_latest(
    writer: store.Writer, lake_url: str
) -> None:
    from datetime import UTC, datetime, timedelta

    from store.upkeep import history

    ahead = {
        "tag_id": "t", "name": "v1", "snapshot_id": 0, "author": "a host whose clock is ahead",
        "created_at": datetime.now(UTC) + timedelta(days=400),
    }  # fmt: skip
    writer.append({"tags": [ahead]}, "tag")
    newest = history.add_tag(writer, "v1", None, None)
    with store.open(lake_url, "v1") as lake:
        assert lake.snapshot == newest > 0
