"""Faults of the world, made for real: a sentence that names the place and says what to do next."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import commands
import duckdb
import httpx2
import psycopg
import pytest
from cyclopts import App
from new_lakes import copy_starter_lake
from postgres_server import OWNER, PostgresServer

import store
from store import faults
from store.lake import attachment
from store.lake.location import Location
from store.upkeep import integrity

pytestmark = pytest.mark.folder
ROOT = Path(store.__file__).parents[1]
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
    "evaluators serve": "a judge", "evaluators mcp": "an agent",
    "evaluators diagnose": "a GPU",
    "evaluators withdraw": "verdicts of an unfit host", "evaluators spread": "repeated sessions",
    "evaluators tasks": "a judge", "evaluators add": "a judge", "trainers run": "a judge",
    "trainers rollout": "a judge", "trainers rescore": "a training",
}  # fmt: skip
"""Commands that write by the same writer once they have what a test of faults does not start."""
READS = {
    "store shell", "store tables", "store views", "store describe", "store log", "store diff",
    "store tag", "store tag list", "store show", "store headline", "store explore", "store mcp",
    "store best", "store compare", "store receipt", "store verify",
    "store import detect", "store check", "pipelines list", "pipelines show", "evaluators list",
    "evaluators check", "evaluators reproduce", "evaluators findings", "evaluators token",
    "evaluators token list",
    "evaluators doctor", "trainers list", "trainers show", "trainers replay",
}  # fmt: skip
UNTESTED = {
    "quota": "a file system with quotas cannot be made in a test",
    "stale": "nor can a file server",
    "engine": "no query is known at which this version of DuckDB fails inside",
}
"""Rows without a test of the real fault. Of "files", ENFILE has none: it is a limit of the host."""
ELSEWHERE = {
    "large": ("store/test_append.py", "a_full_disk_costs_one_append"),
    "expired": ("store/test_bad_places.py", "expired_credentials"),
    "clock": ("store/test_bad_places.py", "expired_credentials_and_a_wrong_clock"),
    "bucket": ("store/test_bad_places.py", "expired_credentials"),
    "credentials": ("store/test_object_storage.py", "wrong_buckets_and_credentials"),
    "storage": ("store/test_object_storage.py", "wrong_buckets_and_credentials"),
    "gpu memory": ("trainers/test_policy.py", "memory_that_a_gpu_does_not_have"),
}
"""Files, and beginnings of tests there, with the real faults of other rows: their fixtures."""
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
    copy_starter_lake(folder / "lake")
    done = commands.run(["store", "--lake", "lake", "tag", "add", "v1"], cwd=folder)
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
        for room in commands.ROOMS
        for command in list_commands(importlib.import_module(f"{room}.cli.app").app, (room,))
    }
    assert known == {*WRITES, *NEED_MORE, *READS}


@pytest.mark.repeats(run=1)
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


@pytest.mark.slow
def test_a_lake_on_a_full_disk_is_read_and_backed_up(full_disk: Place, tmp_path: Path) -> None:
    for line in ("store tables", "store check", f"store backup {tmp_path / 'backup'}"):
        done = full_disk.run(line)
        assert done.returncode == 0, done.stderr


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


@pytest.mark.slow
def test_too_many_open_files_are_no_damage(place: Place) -> None:
    # How many are open at once depends on how DuckDB's threads take turns, hence no one limit.
    runs = (place.run("store compact", RLIMIT_NOFILE=limit) for limit in range(16, 6, -1))
    failed = next(done for done in runs if done.returncode)
    assert_explained(failed, "this process may not open more files, such as", "ulimit -n")


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


@pytest.mark.slow
def test_a_database_without_files_to_open_is_no_matter_of_rights(place: Place) -> None:
    words = [sys.executable, "-m", "store", "check", "--full", "--lake", str(place.lake)]
    done = subprocess.run(
        ["prlimit", "--nofile=14", *words], capture_output=True, text=True, cwd=ROOT
    )
    assert_explained(done, "may not open more files", "ulimit -n")


@pytest.mark.slow
def test_a_closed_standard_output_is_no_bug(place: Place) -> None:
    line = f"{sys.executable} -m store tables --lake {place.lake} >&-"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.repeats(run=1)
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


@pytest.mark.slow
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
    assert_explained(done, f"the device of {target} reports an input/output error", "dmesg")
    assert not target.exists()


def test_a_name_that_is_too_long_is_named(place: Place) -> None:
    done = place.run(f"store export parquet OUT/{'x' * 300}")
    assert_explained(done, f"the name {place.folder / 'xxx'}", "shorter")
    assert "xxx is too long" in done.stderr


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


def test_the_disk_of_duckdb_and_its_memory_are_told_apart(full_disk: Place, tmp_path: Path) -> None:
    connection = duckdb.connect()
    target = full_disk.folder / "copy.csv"
    with pytest.raises(duckdb.IOException) as failed:
        connection.execute(f"COPY (SELECT range FROM range(100000)) TO '{target}'")
    assert f"the disk of {target} is full" in str(faults.explain(failed.value))
    for setting, words, option in (
        ("temp_directory = ''", "of memory", "FLYWHEEL_MEMORY_GB"),
        ("max_temp_directory_size = '1MB'", "of disk space for temporary data", "SPILL_GB"),
    ):
        bounded = duckdb.connect()
        bounded.execute(f"SET memory_limit = '20MB'; SET temp_directory = '{tmp_path}'")
        bounded.execute(f"SET {setting}")
        with pytest.raises(duckdb.OutOfMemoryException) as failed:
            bounded.execute("SELECT count(*) FROM (SELECT DISTINCT range FROM range(5000000))")
        fault = faults.explain(failed.value)
        assert fault is not None
        assert re.match(rf"a query of .* needs more than [\d.]+ \wiB {words}$", fault.message)
        assert option in str(fault.hint)


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
        (b"HTTP/1.1 404 None\r\nContent-Length: 0\r\n\r\n", "does not exist"),
        (b"HTTP/1.1 422 Hm\r\nContent-Length: 0\r\n\r\n", "refuses the request"),
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
    for module, package in (("mcp", "'.[mcp]'"), ("pandas", "pandas")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ModuleNotFoundError) as failed:
            importlib.import_module(module)
        assert f"pip install {package}" in str(faults.explain(failed.value))


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("command", "module"), [("explore", "starlette"), ("mcp", "mcp")])
def test_a_command_whose_extra_is_not_installed_names_it(
    place: Place, command: str, module: str
) -> None:
    code = (
        f"import runpy, sys; sys.modules[{module!r}] = None; sys.argv = ['store', {command!r}]\n"
        "runpy.run_module('store', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place.folder, capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert_explained(done, f"the package {module} is not installed", f"pip install '.[{command}]'")


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    "words", ["import kernelbook", "import openevolve", "import shinka", "query --file"]
)
def test_a_file_that_may_not_be_read_is_named(place: Place, words: str) -> None:
    file = place.folder / ("source.sqlite" if "shinka" in words else "source.jsonl")
    file.write_text("{}\n")
    file.chmod(0)
    done = Place(place.folder, unprivileged=True).run(f"store {words} {file}")
    assert_explained(done, f"you have no right to {file}", "ls -ld")


def test_the_causes_of_an_error_and_the_members_of_a_group_count(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file") as failed:
        (tmp_path / "missing" / "file").read_text()
    missing = f"{tmp_path / 'missing'} does not exist"
    wrapped = RuntimeError("a worker failed")
    wrapped.__cause__ = failed.value
    for error in (failed.value, wrapped, ExceptionGroup("all", [ValueError(), failed.value])):
        assert missing in str(faults.explain(error))


def write_a_running_program(folder: Path) -> None:
    program = Path(shutil.copy(shutil.which("sleep") or "sleep", folder))
    with subprocess.Popen([program, "60"]) as running:
        try:
            program.write_bytes(b"")
        finally:
            running.kill()


def follow_a_circle_of_links(folder: Path) -> None:
    (folder / "a").symlink_to("b")
    (folder / "b").symlink_to("a")
    (folder / "a").read_text()


def read_inside_a_file(folder: Path) -> None:
    (folder / "f").touch()
    (folder / "f" / "x").read_text()


@pytest.mark.parametrize(
    ("words", "name", "work"),
    [
        ("is in use by another program", "sleep", write_a_running_program),
        ("is a circle of symbolic links", "a", follow_a_circle_of_links),
        ("exists already", "", lambda folder: folder.mkdir()),  # EEXIST
        ("or is not empty", "", lambda folder: (folder / "x").mkdir() or folder.rmdir()),
        ("is a folder, not a file", "", lambda folder: folder.read_text()),
        ("is a file, not a folder", "f", read_inside_a_file),
    ],
)  # fmt: skip
def test_a_path_that_cannot_be_used_is_named(
    tmp_path: Path, words: str, name: str, work: Callable[[Path], object]
) -> None:
    with pytest.raises(OSError, match=r"Errno") as failed:
        work(tmp_path)
    fault = faults.explain(failed.value)
    assert fault is not None
    assert fault.message.startswith(f"{tmp_path / name} ")
    assert words in fault.message
    assert fault.hint


def test_processes_and_threads_that_a_user_may_not_start_are_counted() -> None:
    if os.geteuid():
        pytest.skip("only root may take a user without other processes")
    code = (
        "import os, resource, threading; from store import faults\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1)); os.setgroups([]); os.setuid(54321)\n"
        "for work in (os.fork, threading.Thread(target=print).start):\n"
        "    try: work()\n"
        "    except Exception as error: print(faults.explain(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.count("this host starts no more processes or threads") == 2
    assert done.stdout.count("ulimit -u") == 2


def test_a_certificate_that_nobody_signed_is_named(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key", "-out", "certificate"],
        check=True, capture_output=True, cwd=tmp_path,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")

    def refuse(server: socket.socket) -> None:
        with pytest.raises(ssl.SSLError), server.accept()[0] as client:
            context.wrap_socket(client, server_side=True)

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=refuse, args=[server])
        thread.start()
        with pytest.raises(httpx2.ConnectError) as failed:
            httpx2.get(url, timeout=120)
        thread.join()
    fault = faults.explain(failed.value)
    assert fault is not None
    assert f"the certificate of {url} is not trusted" in fault.message
    assert "SSL_CERT_FILE" in str(fault.hint)


def connect_often(address: str) -> None:
    with ExitStack() as sessions:
        for _ in range(1000):
            sessions.enter_context(psycopg.connect(address))


@pytest.mark.slow
def test_a_server_without_free_connections_is_named(server: PostgresServer) -> None:
    address = f"host=127.0.0.1 port={server.port} dbname=postgres"
    with ExitStack() as stack:
        first = stack.enter_context(psycopg.connect(f"{address} user={OWNER}", autocommit=True))
        first.execute("CREATE ROLE limited LOGIN CONNECTION LIMIT 0")
        stack.callback(first.execute, "DROP ROLE limited")
        with pytest.raises(psycopg.OperationalError, match="for role") as of_role:
            psycopg.connect(f"{address} user=limited")
        with pytest.raises(psycopg.OperationalError, match="too many") as full:
            connect_often(f"{address} user={OWNER}")
    for failed in (of_role, full):
        fault = faults.explain(failed.value, "postgresql://127.0.0.1/postgres")
        assert fault is not None
        assert "postgresql://127.0.0.1/postgres accepts no more connections" in fault.message
        assert "max_connections" in str(fault.hint)


@pytest.mark.slow
def test_a_full_disk_of_a_server_is_named(server: PostgresServer) -> None:
    folder = tempfile.mkdtemp()  # not inside tmp_path, where the server's user has no right
    mount("-t", "tmpfs", "-o", "size=1m,uid=nobody", "tmpfs", folder)
    address = f"host=127.0.0.1 port={server.port} dbname=postgres user={OWNER}"
    try:
        with psycopg.connect(address, autocommit=True) as session:
            session.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
            session.execute("CREATE TABLE large (x TEXT) TABLESPACE small")
            with pytest.raises(psycopg.OperationalError, match="No space left") as failed:
                session.execute(
                    "INSERT INTO large SELECT repeat('x', 99) FROM generate_series(1, 99999)"
                )
            session.execute("DROP TABLE large")
            session.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        os.rmdir(folder)
    fault = faults.explain(failed.value, "postgresql://127.0.0.1/postgres")
    assert "the disk of postgresql://127.0.0.1/postgres is full" in str(fault)


@pytest.mark.slow
def test_a_connection_that_a_server_ends_is_named(server: PostgresServer) -> None:
    address = f"host=127.0.0.1 port={server.port} dbname=postgres user={OWNER}"
    with psycopg.connect(address, autocommit=True) as session:
        other = psycopg.connect(address, autocommit=True)
        session.execute("SELECT pg_terminate_backend(%s)", [other.info.backend_pid])
        with pytest.raises(psycopg.OperationalError) as failed:
            other.execute("SELECT 1")
    assert "the connection to HOST was lost" in str(faults.explain(failed.value, "HOST"))


def test_a_hub_that_is_switched_off_is_named(tmp_path: Path) -> None:
    done = commands.run(
        ["store", "pull", "nobody/nothing"],
        cwd=tmp_path,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
    )
    assert_explained(done, "HF_HUB_OFFLINE", "Unset it")


def lock_a_database(folder: Path) -> None:
    first, second = (sqlite3.connect(folder / "database", timeout=0) for _ in "ab")
    first.execute("BEGIN EXCLUSIVE")
    try:
        second.execute("BEGIN")
        second.execute("SELECT * FROM sqlite_master")
    finally:
        first.close()
        second.close()


def commit_two_at_a_time(folder: Path) -> None:
    first = attachment.connect()
    first.execute(f"ATTACH 'ducklake:{folder / 'lake'}' AS lake (DATA_PATH '{folder}')")
    second = first.cursor()
    for connection in (first, second):
        connection.execute("BEGIN; CREATE TABLE lake.same (x INTEGER)")
    first.execute("COMMIT")
    second.execute("COMMIT")


def open_a_folder(folder: Path) -> None:
    sqlite3.connect(folder).execute("SELECT 1")


def open_inside_a_file(folder: Path) -> None:
    (folder / "f").touch()
    duckdb.connect(folder / "f" / "x")


def cut_a_database(folder: Path) -> None:
    file = folder / "database"
    with duckdb.connect(file) as connection:
        connection.execute("CREATE TABLE numbers AS FROM range(100000)")
    data = bytearray(file.read_bytes())
    data[20_000:90_000] = bytes(70_000)
    file.write_bytes(data)
    duckdb.connect(file).execute("SELECT sum(range) FROM numbers")


@pytest.mark.parametrize(
    ("words", "work"),
    [
        ("another program holds PLACE", lock_a_database),
        ("another program has committed to PLACE meanwhile", commit_two_at_a_time),
        ("PLACE is damaged, or no database", cut_a_database),
        ("PLACE cannot be opened as a database", open_a_folder),
        ("cannot be read or written", lambda folder: duckdb.sql(f"FROM '{folder}/*.csv'")),
        ("is a folder, not a file", lambda folder: duckdb.sql(f"COPY (SELECT 1) TO '{folder}'")),
        ("f is a file, not a folder", open_inside_a_file),
    ],
)  # fmt: skip
def test_what_databases_say_is_explained(
    tmp_path: Path, words: str, work: Callable[[Path], object]
) -> None:
    with pytest.raises((duckdb.Error, sqlite3.Error)) as failed:
        work(tmp_path)
    fault = faults.explain(failed.value, "PLACE")
    assert fault is not None
    assert words in fault.message
    assert fault.hint


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("pipe", ["output", "child", "socket"])
def test_only_a_closed_standard_output_ends_a_command_without_an_error(pipe: str) -> None:
    code = (
        "import socket, subprocess, sys\n"
        "from cyclopts import App; from store.commandline import members; app = App()\n"
        "@app.default\n"
        "def write(pipe: str):\n"
        "    if pipe == 'output':\n"
        "        for _ in range(100_000): print('line')\n"
        "    elif pipe == 'socket':\n"
        "        ours, theirs = socket.socketpair(); theirs.close(); ours.sendall(b'x')\n"
        "    else:\n"
        "        child = subprocess.Popen(['true'], stdin=subprocess.PIPE); child.wait()\n"
        "        child.stdin.write(b'x'); child.stdin.flush()\n"
        "members.run(app)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, pipe],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    ) as command:  # fmt: skip
        assert command.stdout is not None
        assert command.stderr is not None
        if pipe == "output":
            command.stdout.readline()
            command.stdout.close()
        said = command.stderr.read()
    if pipe == "output":
        assert (command.returncode, said) == (0, "")
    else:
        assert command.returncode == 1
        assert said.startswith("error: another program ended the connection")


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("free_kib", [80, 60, 100])
def test_a_dataset_whose_record_met_a_full_disk_is_recorded_by_the_next_run(
    full_disk: Place, tmp_path: Path, free_kib: int
) -> None:
    filler = full_disk.folder / "filler"
    # Enough to read the lake, too little to record.
    os.truncate(filler, filler.stat().st_size - free_kib * 1024)
    command = f"pipelines run sft --out {tmp_path / 'dataset'}"
    failed = full_disk.run(command)
    assert_explained(failed, f"the disk of {full_disk.folder}", "Free space there")
    assert (tmp_path / "dataset" / "README.md").exists()
    filler.unlink()
    assert full_disk.run(command).returncode == 0
    with store.open(str(full_disk.lake)) as lake:
        [row] = lake.sql(
            "SELECT d.path, d.rows, count(*) AS recorded FROM datasets d"
            " JOIN dataset_rows USING (dataset_id) GROUP BY ALL"
        ).rows()
    assert row["path"] == str(tmp_path / "dataset")
    assert row["rows"] == row["recorded"] > 0
    assert integrity.check(Location.of(str(full_disk.lake))) == []


def test_every_row_of_the_map_is_tested_with_the_real_fault_or_named_as_untested() -> None:
    own = Path(__file__).read_text("utf-8").partition("\ndef assert_explained")[2]
    own = " ".join(own.split())
    for kind, (message, _) in faults.FAULTS.items():
        if kind in ELSEWHERE:
            file, name = ELSEWHERE[kind]
            assert f"def test_{name}" in (ROOT / "tests" / file).read_text("utf-8")
        elif kind not in UNTESTED:
            # Words of the message that a test here expects; its place and size vary.
            parts = [part.strip() for part in re.split(r"\{\w+\}", message)]
            assert all(part[:12] in own for part in parts if len(part) >= len("is full")), kind
    assert not {*ELSEWHERE, *UNTESTED} - {*faults.FAULTS}
