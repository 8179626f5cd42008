"""Faults of the world, made for real: a sentence that names the place and says what to do next."""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import commands
import duckdb
import httpx2
import psycopg
import pytest
from cyclopts import App

import store
from store import faults
from store.lake.location import Location
from store.upkeep import integrity

pytestmark = pytest.mark.folder
ROOT = Path(store.__file__).parents[1]
ROOMS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
WRITES = {
    "store init": "",
    "store tag add": "v2",
    "store tag rm": "v1",
    "store import": "starter",
    "store export": "parquet OUT/export",
    "store report": "--out OUT/report",
    "store query": "TABLE(tasks) --out OUT/rows.csv",
    "store compact": "",
    "store expire": "--older-than-days 0",
    "store backup": "OUT/backup",
    "store move": "LAKE OUT/moved",
    "pipelines run": "sft --out OUT/dataset",
    "evaluators audit": "",
    "evaluators quarantine": "823896 --why test",
    "evaluators dismiss": "823896 --why test",
    "evaluators token create": "me --scope judge",
    "evaluators token revoke": "seed",
}
"""Commands that write, with arguments by which they do."""
NEED_MORE = {
    "store restore": "a damaged lake", "store rejected": "rejected bundles",
    "store publish": "a Hub", "store pull": "a Hub", "evaluators run": "a judge",
    "evaluators serve": "a judge", "evaluators mcp": "an agent", "evaluators join": "a service",
    "evaluators diagnose": "a GPU", "evaluators tasks": "a judge", "trainers run": "a judge",
    "trainers rollout": "a judge", "trainers rescore": "a training",
}  # fmt: skip
"""Commands that write by the same writer once they have what a test of faults does not start."""
READS = {
    "store shell", "store tables", "store views", "store describe", "store log", "store diff",
    "store tag", "store tag list", "store show", "store headline", "store explore", "store mcp",
    "store import detect", "store check", "pipelines list", "pipelines show", "evaluators list",
    "evaluators check", "evaluators findings", "evaluators token", "evaluators token list",
    "evaluators doctor", "trainers list", "trainers show",
}  # fmt: skip
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int is_bad(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/place/.flywheel-") != NULL;
}
ssize_t write(int file, const void *data, size_t size) {
    if (is_bad(file)) { errno = EIO; return -1; }
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return real(file, data, size);
}
"""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake with the starter suite, a tag and a token, to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    for words in ("import starter", "tag add v1"):
        done = commands.run(["store", "--lake", "lake", *words.split()], cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder / "lake"


@dataclass(frozen=True)
class Place:
    """A folder with a copy of a lake and room for outputs, in which something is wrong."""

    folder: Path
    unprivileged: bool = False

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    def run(self, command: str, **limits: int) -> subprocess.CompletedProcess[str]:
        room, *words = command.replace("OUT", str(self.folder)).split()
        words = [word.replace("TABLE(tasks)", "FROM tasks") for word in words]
        if "LAKE" in words:
            words[words.index("LAKE")] = str(self.lake)
        else:
            words = ["--lake", str(self.lake), *words]
        return commands.run(
            [room, *words],
            cwd=self.folder,
            env=os.environ | {"XDG_STATE_HOME": str(self.folder.parent / "state")},
            limits=limits,
            unprivileged=self.unprivileged,
        )


def mount(*arguments: str) -> None:
    if os.geteuid():
        pytest.skip("only root may mount a file system")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def place(filled: Path, tmp_path: Path) -> Place:
    folder = tmp_path / "place"
    folder.mkdir()
    shutil.copytree(filled, folder / "lake")
    return Place(folder)


@pytest.fixture
def full_disk(filled: Path, tmp_path: Path) -> Iterator[Place]:
    """Return a place on a disk without a free byte."""
    folder = tmp_path / "place"
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder))
    try:
        shutil.copytree(filled, folder / "lake")
        fill_disk(folder)
        yield Place(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill_disk(folder: Path) -> None:
    with open(folder / "filler", "wb", 0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass


@pytest.fixture
def read_only_disk(place: Place) -> Iterator[Place]:
    mount("--bind", str(place.folder), str(place.folder))
    try:
        mount("-o", "remount,bind,ro", str(place.folder))
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place.folder], check=True)


@pytest.fixture
def closed_folder(place: Place) -> Iterator[Place]:
    """Return a place in which nothing may be written."""
    paths = [place.folder, *place.folder.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield Place(place.folder, unprivileged=True)
    for path in paths:
        path.chmod(0o755)


def assert_explained(done: subprocess.CompletedProcess[str], words: str, hint: str) -> None:
    """Assert that a command ended with one error of two lines, about a place, and with a hint."""
    *_, error, advice = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "Traceback" not in done.stderr
    assert "This is a bug" not in done.stderr
    assert error.startswith("error: "), done.stderr
    assert words in error
    assert hint in advice


def list_commands(app: App, path: tuple[str, ...]) -> Iterator[str]:
    for name in app:
        if not name.startswith("-"):
            yield " ".join((*path, name))
            yield from list_commands(app[name], (*path, name))


def test_every_command_is_known_to_write_or_to_read() -> None:
    known = {
        command
        for room in ROOMS
        for command in list_commands(importlib.import_module(f"{room}.cli.app").app, (room,))
    }
    assert known == {*WRITES, *NEED_MORE, *READS}


@pytest.mark.repeats(run=4)
@pytest.mark.parametrize("command", WRITES)
def test_a_full_disk_is_named(full_disk: Place, command: str) -> None:
    before = {path.name for path in full_disk.folder.iterdir()}
    done = full_disk.run(f"{command} {WRITES[command]}")
    assert_explained(done, f"the disk of {full_disk.folder}", "Free space there")
    assert "is full" in done.stderr
    left = {path.name for path in full_disk.folder.iterdir()} - before
    assert left <= {"backup", "moved"}  # which the next run completes
    assert not list(full_disk.folder.rglob("*.partial"))
    (full_disk.folder / "filler").unlink()
    assert integrity.check(Location.of(str(full_disk.lake))) == []
    if command in ("store backup", "store move"):
        again = full_disk.run(f"{command} {WRITES[command]}")
        assert again.returncode == 0, again.stderr


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("command", WRITES)
def test_a_read_only_file_system_is_named(read_only_disk: Place, command: str) -> None:
    done = read_only_disk.run(f"{command} {WRITES[command]}")
    assert_explained(done, f"{read_only_disk.folder}", "Remount it writable")
    assert "is on a read-only file system" in done.stderr


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("command", WRITES)
def test_a_place_without_the_right_to_write_is_named(closed_folder: Place, command: str) -> None:
    done = closed_folder.run(f"{command} {WRITES[command]}")
    assert_explained(done, f"you have no right to {closed_folder.folder}", "ask its owner")


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("command", ["store query FROM", "store log", "store check", "store move"])
@pytest.mark.parametrize("closed", ["lake", "lake/data/main/tasks"])
def test_a_lake_that_may_not_be_read_is_not_called_damaged(
    place: Place, command: str, closed: str
) -> None:
    if (command, closed) == ("store log", "lake/data/main/tasks"):
        return  # it reads no data file
    arguments = {"store query FROM": "TABLE(tasks)", "store move": "LAKE OUT/moved"}
    folder = place.folder / closed
    folder.chmod(0)
    asked = f"{command.removesuffix(' FROM')} {arguments.get(command, '')}"
    done = Place(place.folder, unprivileged=True).run(asked)
    folder.chmod(0o755)
    assert_explained(done, f"you have no right to {folder}", "ls -ld")


def test_too_many_open_files_are_no_damage(place: Place) -> None:
    done = place.run("store compact", RLIMIT_NOFILE=16)
    assert_explained(done, "may not open more files", "ulimit -n")


def test_a_full_folder_for_temporary_files_is_named(full_disk: Place) -> None:
    connection = duckdb.connect()
    scratch = full_disk.folder / "kernel-flywheel-0" / "process-1"
    scratch.mkdir(parents=True)
    connection.execute(f"SET temp_directory = '{scratch / 'spill'}'")
    connection.execute("SET memory_limit = '20MB'; SET max_temp_directory_size = '1GB'")
    with pytest.raises(duckdb.IOException) as failed:
        connection.execute("SELECT count(*) FROM (SELECT DISTINCT range FROM range(5000000))")
    fault = faults.explain(failed.value)
    assert fault is not None
    assert f"{full_disk.folder}, the folder for temporary files, is full" in fault.message
    assert "TMPDIR" in str(fault.hint)


@pytest.mark.parametrize("size", [1, 100_000])
def test_a_full_disk_behind_the_standard_output_ends_with_one_sentence(
    place: Place, size: int
) -> None:
    with open("/dev/full", "w") as full:
        words = ["query", f"SELECT repeat('x', {size})", "--format", "csv", "--lake", place.lake]
        done = subprocess.run(
            [sys.executable, "-m", "store", *words],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "error: the disk of <stdout> is full\n"
        "Free space there, or name a place on another disk, and run this again.\n"
    )


def test_a_device_that_fails_is_named(place: Place) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    source, shim = place.folder / "shim.c", place.folder / "shim.so"
    source.write_text(SHIM)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", shim, source, "-ldl"], check=True)
    target = place.folder / "export"
    done = subprocess.run(
        [sys.executable, "-m", "store", "export", "jsonl", target, "--lake", place.lake],
        capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(shim)},
    )  # fmt: skip
    assert_explained(done, f"the device of {target}", "dmesg")
    assert not target.exists()


def test_a_name_that_is_too_long_is_named(place: Place) -> None:
    done = place.run(f"store export parquet OUT/{'x' * 300}")
    assert_explained(done, "is too long", "shorter")


def test_memory_that_is_not_there_is_asked_for() -> None:
    code = (
        "import resource, pyarrow; from store import faults\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "for take in (lambda: pyarrow.allocate_buffer(8 << 30), lambda: bytearray(8 << 30)):\n"
        "    try: take()\n"
        "    except Exception as error: print(faults.explain(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("there is not enough memory") == 2
    assert done.stdout.count("ulimit -v") == 2


def test_the_disk_of_duckdb_and_its_memory_are_told_apart(full_disk: Place) -> None:
    connection = duckdb.connect()
    target = full_disk.folder / "copy.csv"
    with pytest.raises(duckdb.IOException) as failed:
        connection.execute(f"COPY (SELECT range FROM range(100000)) TO '{target}'")
    assert f"the disk of {target} is full" in str(faults.explain(failed.value))
    connection.execute("SET memory_limit = '1MB'; SET temp_directory = ''")
    with pytest.raises(duckdb.OutOfMemoryException) as failed:
        connection.execute("SELECT count(*) FROM (SELECT DISTINCT range FROM range(1000000))")
    assert "FLYWHEEL_MEMORY_GB" in str(faults.explain(failed.value))


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 'No space left on device: permission denied'::INTEGER",
        'SELECT * FROM "database is locked"',
        "SELEC 'disk I/O error'",
    ],
)
def test_words_that_a_query_quotes_are_no_fault(statement: str) -> None:
    with pytest.raises(duckdb.Error) as failed:
        duckdb.connect().execute(statement)
    assert faults.explain(failed.value) is None


@pytest.mark.parametrize("error", [KeyError("disk is full"), AssertionError(), TypeError("x")])
def test_our_own_mistakes_are_bugs(error: Exception) -> None:
    assert faults.explain(error, "/place") is None


def ask(answer: bytes | None, timeout_s: float) -> httpx2.Response:
    """Send a request to a server that gives one answer, or None."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def serve() -> None:
            with server.accept()[0] as client:
                client.recv(1000)
                if answer is None:
                    ended.wait()
                else:
                    client.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            port = server.getsockname()[1]
            return httpx2.get(f"http://127.0.0.1:{port}/x", timeout=timeout_s).raise_for_status()
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "did not answer in time"),
        (b"", "ended the connection"),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "has failed"),
        (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "does not accept the credentials"),
        (b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n", "refuses more requests"),
    ],
)
def test_a_server_that_fails_is_named(answer: bytes | None, words: str) -> None:
    with pytest.raises(httpx2.HTTPError) as failed:
        ask(answer, 0.2 if answer is None else 30)
    fault = faults.explain(failed.value)
    assert fault is not None
    assert fault.message.startswith("http://127.0.0.1:")
    assert words in fault.message
    assert fault.hint


def test_a_port_without_a_server_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        port = taken.getsockname()[1]
        with pytest.raises(httpx2.ConnectError) as failed:
            httpx2.get(f"http://127.0.0.1:{port}/x")
        with pytest.raises(psycopg.OperationalError) as refused:
            psycopg.connect(f"host=127.0.0.1 port={port} dbname=lake", connect_timeout=10)
    assert "no connection to http://127.0.0.1" in str(faults.explain(failed.value))
    fault = faults.explain(refused.value, "postgresql://127.0.0.1/lake")
    assert "no connection to postgresql://127.0.0.1/lake" in str(fault)


def test_a_package_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, package in (("mcp", "'kernel-flywheel[mcp]'"), ("pandas", "pandas")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ModuleNotFoundError) as failed:
            importlib.import_module(module)
        assert f"pip install {package}" in str(faults.explain(failed.value))


def test_the_causes_of_an_error_and_the_members_of_a_group_count(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as failed:
        (tmp_path / "missing" / "file").read_text()
    missing = f"{tmp_path / 'missing'} does not exist"
    wrapped = RuntimeError("a worker failed")
    wrapped.__cause__ = failed.value
    for error in (failed.value, wrapped, ExceptionGroup("all", [ValueError(), failed.value])):
        assert missing in str(faults.explain(error))
