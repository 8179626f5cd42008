"""Faults of the world, such as a full disk or a lost connection: what happened and what to do.

The one map from the errors of the system, DuckDB, SQLite, Arrow, PostgreSQL, HTTP clients, the Hub
and torch to a FlywheelError. What it does not know is a bug.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import tempfile
import traceback
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from importlib import metadata, util
from pathlib import Path
from typing import Any

from store.errors import CommitConflict, FlywheelError, LakeUnreachable, summarize_error

RESTORE_LAKE = (
    "`store restore BACKUP` puts back a folder that `store backup` wrote; that folder can also be "
    "read where it is, with --lake."
)
"""What to do about a lake whose catalog is missing or damaged."""
NO_CATALOG = (
    f"Nothing was changed. {RESTORE_LAKE} If no lake was here, name another place with --lake."
)
_AGAIN = "and run this again"
_OWNER = "or ask its owner for the right"
FAULTS: dict[str, tuple[str, str]] = {
    "full": (
        "the disk of {place} is full",
        f"Free space there, or name a place on another disk, {_AGAIN}.",
    ),
    "temporary": (
        "the disk of {place}, the folder for temporary files, is full",
        f"Free space there, or set TMPDIR to a folder on another disk, {_AGAIN}.",
    ),
    "spill": (
        "a query of {query} needs more than {size} of disk space for temporary data",
        "Ask for less (a filter, fewer columns), raise FLYWHEEL_SPILL_GB, or set TMPDIR to a "
        f"folder on a larger disk, {_AGAIN}.",
    ),
    "quota": (
        "the disk quota of {place} is used up",
        f"Delete files there, or name a place on another disk, {_AGAIN}.",
    ),
    "large": (
        "a file would be larger than files may be, in {place}",
        f"Raise the limit (`ulimit -f`), or name a place on another disk, {_AGAIN}.",
    ),
    "denied": ("you have no right to {place}", f"Test its rights with `ls -ld`, {_OWNER}."),
    "read-only": (
        "{place} is on a read-only file system",
        f"Remount it writable, or name a place on another one, {_AGAIN}.",
    ),
    "device": (
        "the device of {place} reports an input/output error",
        f"Test the disk and the system's log (`dmesg`), {_AGAIN}. Put back a backup (a folder made "
        "by `store backup`) if files are damaged.",
    ),
    "files": (
        "this process may not open more files, such as {place}",
        f"Raise the limit on open files (`ulimit -n 4096`), {_AGAIN}.",
    ),
    "processes": (
        "this host starts no more processes or threads",
        f"Raise the limit (`ulimit -u`), end other programs, {_AGAIN}.",
    ),
    "memory": (
        "there is not enough memory",
        "End other programs, raise the limit on memory (`ulimit -v`), or let DuckDB use less of it "
        f"with FLYWHEEL_MEMORY_GB, {_AGAIN}.",
    ),
    "query memory": (
        "a query of {query} needs more than {size} of memory",
        f"Ask for less (a filter, fewer columns), or raise FLYWHEEL_MEMORY_GB, {_AGAIN}.",
    ),
    "gpu memory": (
        "the GPU has not enough memory",
        "`nvidia-smi` shows what uses it. End other programs there, or take smaller batches, a "
        f"smaller model or shorter answers, {_AGAIN}.",
    ),
    "name": ("the name {place} is too long", "Name a shorter path."),
    "missing": ("{place} does not exist", "Correct the path. --verbose shows where it is used."),
    "folder": ("{place} is a folder, not a file", "Name a file, or move that folder away."),
    "file": ("{place} is a file, not a folder", "Name a folder, or move that file away."),
    "exists": ("{place} exists already, or is not empty", "Name another path, or move it away."),
    "links": ("{place} is a circle of symbolic links", "Name another path."),
    "stale": (
        "{place} was replaced or deleted on its file server",
        f"Mount the file system again, {_AGAIN}.",
    ),
    "in use": ("{place} is in use by another program", f"End that program, {_AGAIN}."),
    "locked": (
        "another program holds {place}",
        f"Let go of it there, {_AGAIN}; what was spooled is kept.",
    ),
    "conflict": (
        "another program has committed to {place} meanwhile",
        "Run this again; what was spooled is kept.",
    ),
    "data file": (
        "{place} is damaged",
        "`store check --full` names every damaged file. Copy it back from a backup.",
    ),
    "damaged": ("{place} is damaged, or no database", f"{RESTORE_LAKE} Or name another lake."),
    "unusable": (
        "{place} cannot be read or written",
        f"Test that place and the network, {_AGAIN}.",
    ),
    "unopened": (
        "{place} cannot be opened as a database",
        f"Test whether it is there, and its rights with `ls -l`, {_OWNER}.",
    ),
    "expired": (
        "the credentials for {place} have expired",
        "Renew them, as with `aws sso login` or a new AWS_SESSION_TOKEN, and run this again.",
    ),
    "clock": (
        "{place} refuses this host, because its clock is off",
        "Set the clock, as with an NTP service, and run this again.",
    ),
    "credentials": (
        "these credentials have no right to {place}",
        "Test with `aws s3 ls` whether they are valid and not expired, or ask the owner of the "
        "bucket for the right.",
    ),
    "storage": (
        "no connection to {place}",
        "Test the network and AWS_ENDPOINT_URL, and run this again.",
    ),
    "bucket": (
        "{place} cannot be used",
        "Test bucket and credentials with `aws s3 ls`. They come from where the AWS tools look: "
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or the host's role; another "
        "server than AWS is named by AWS_ENDPOINT_URL.",
    ),
    "network": ("no connection to {place}", f"Test the address and the network, {_AGAIN}."),
    "timeout": ("{place} did not answer in time", f"Test the network, {_AGAIN} later."),
    "broken": (
        "{place} ended the connection",
        f"Test the network and whether the other program still runs, {_AGAIN}.",
    ),
    "tls": (
        "the certificate of {place} is not trusted",
        "Test the address and this host's clock. Name a certificate of your own with SSL_CERT_FILE "
        "(in the URL of a lake on PostgreSQL with sslrootcert=FILE).",
    ),
    "forbidden": (
        "{place} does not accept the credentials",
        "Test token and user: HF_TOKEN or `hf auth login` for the Hub, PGPASSWORD or ~/.pgpass for "
        "PostgreSQL.",
    ),
    "absent": ("{place} does not exist", "Correct its name."),
    "too often": ("{place} refuses more requests for now", "Run this again later."),
    "refused": ("{place} refuses the request", "Correct the request."),
    "server": ("{place} has failed", "Run this again later; its log says more."),
    "connections": (
        "{place} accepts no more connections",
        "End other sessions or raise max_connections there, and run this again.",
    ),
    "lost": ("the connection to {place} was lost", f"Test that server and the network, {_AGAIN}."),
    "engine": (
        "DuckDB has failed and must be started anew",
        f"{_AGAIN[4:].capitalize()}. If this happens every time, --verbose shows what to report.",
    ),
}
"""What happened and what to do next, by the kind of the fault."""
_ERRNOS = {
    getattr(errno, name): kind
    for kind, names in {
        "full": "ENOSPC",
        "quota": "EDQUOT",
        "large": "EFBIG",
        "denied": "EACCES EPERM",
        "read-only": "EROFS",
        "device": "EIO",
        "files": "EMFILE ENFILE",
        "processes": "EAGAIN",
        "memory": "ENOMEM",
        "name": "ENAMETOOLONG",
        "missing": "ENOENT",
        "folder": "EISDIR",
        "file": "ENOTDIR",
        "exists": "EEXIST ENOTEMPTY",
        "links": "ELOOP",
        "stale": "ESTALE",
        "in use": "ETXTBSY EBUSY",
        "network": "ECONNREFUSED EHOSTUNREACH ENETUNREACH ENETDOWN",
        "broken": "EPIPE ECONNRESET ECONNABORTED",
        "timeout": "ETIMEDOUT",
    }.items()
    for name in names.split()
}
_STORAGE_WORDS = (
    ("expired", "expiredtoken|token has expired|tokenrefreshrequired"),
    ("clock", "requesttimetooskewed|difference between the request time"),
    (
        "credentials",
        "http code 403|forbidden|accessdenied|access_denied|access denied|invalidaccesskeyid"
        "|signaturedoesnotmatch",
    ),
    (
        "storage",
        "could not connect to server|could not resolve host|couldn't resolve host"
        "|network_connection",
    ),
    ("bucket", "aws error"),
)
"""Words of servers with S3's protocol, which DuckDB and Arrow pass on."""
_LOST = (
    "server closed the connection|terminating connection|no connection to the server"
    "|connection to server|connection has been closed|connection is closed|the connection is lost"
    "|could not receive data from server|could not send data to server"
    "|another process has taken the lock"
)
"""Words of PostgreSQL's client and of our own fence."""
_WORDS = (
    ("spill", "max_temp_directory_size|failed to offload"),
    ("full", "no space left|disk is full|could not extend file"),
    ("quota", "disk quota"),
    ("large", "file too large"),
    ("read-only", "read-only file system"),
    ("denied", "permission denied|operation not permitted|attempt to write a readonly"),
    ("device", "disk i/o error|input/output error"),
    ("files", "too many open files"),
    ("conflict", "transaction conflict"),
    ("locked", "database is locked|database table is locked|could not set lock on file"),
    ("damaged", "is not a database|image is malformed|corrupt database file"),
    ("unopened", "unable to open database"),
    ("data file", "to be a parquet file|no magic bytes|equal to footer length"),
    ("folder", ": is a directory"),
    ("file", ": not a directory|it exists and is a file"),
    ("forbidden", "authentication failed|no password supplied|no pg_hba.conf entry"),
    ("connections", "too many connections|too many clients|remaining connection slots"),
    ("absent", '" does not exist'),
    ("network", "connection refused|could not translate host|failed: no such file"),
    ("timeout", "timeout expired|timed out"),
    ("tls", "certificate"),
    ("lost", _LOST),
    ("memory", "bad allocation|bad_alloc|cannot allocate memory|malloc of size"),
    ("processes", "resource temporarily unavailable"),
    ("engine", "database has been invalidated|internal error"),
)
"""Words by which texts of DuckDB, SQLite, Arrow and PostgreSQL tell a kind; the first that fits."""
_BOUND = re.compile(r"/([\d.]+ \wiB) used\)")
"""The size of the bound at which DuckDB ended a query."""
_NAMED = re.compile(r"""["']((?:/|[a-z0-9]+://)[^"'\n]*)["']""")
_PARTIAL = re.compile(r"/\.flywheel-[0-9a-f]+\.partial")
"""Folder of an output until it is complete; people know the place that it will have."""
_SCARCE_BYTES = 1 << 20
"""A disk with less free space is full for what this program writes."""
_DATABASE_FILES = 16
"""Files that a database has open at a time, at most."""
_LIBRARIES = {"_duckdb", "duckdb", "sqlite3", "pyarrow", "psycopg", "polars"}
"""Libraries whose errors tell their kind in their text only."""
_OF_SQL = {
    "BinderException", "CatalogException", "ConstraintException", "ConversionException",
    "OutOfRangeException", "ParserException", "SyntaxException", "TypeMismatchException",
}  # fmt: skip
"""DuckDB's errors about a statement or a value, which they quote."""
_HTTP = {"httpx", "httpx2", "httpcore", "huggingface_hub", "requests", "urllib3", "urllib"}
_STATUSES = {401: "forbidden", 403: "forbidden", 404: "absent", 408: "timeout", 429: "too often"}
_OF_STORAGE = {"expired", "clock", "credentials", "storage", "bucket"}
_OF_SERVERS = _OF_STORAGE | {
    "network", "timeout", "broken", "tls", "forbidden", "absent", "too often", "refused", "server",
    "connections", "lost",
}  # fmt: skip
"""Faults whose place is an address; their libraries say more than the kind."""
_CLEAR = {
    "full", "temporary", "quota", "large", "read-only", "denied", "files", "processes", "memory",
    "locked", "conflict", "damaged", "expired", "clock", "spill", "query memory",
}  # fmt: skip
"""Faults to which the text of a library adds nothing."""
_SCRATCH = re.compile(r"(.+)/(kernel-flywheel-[0-9]+|flywheel-query-[^/]+)(/|$)")
"""A path of ours in the folder for temporary files; Python takes another one if that is full."""
_OWN = {"store", "pipelines", "evaluators", "trainers"}


def explain(
    error: BaseException,
    place: Path | str | None = None,
    kind: type[FlywheelError] = FlywheelError,
    note: str = "",
) -> FlywheelError | None:
    """Return what happened, where and what to do; None for what is no fault of the world.

    A fault among the causes of an error counts, and one in a group. `place` is for errors that name
    none.
    """
    for cause in list_causes(error):
        if isinstance(cause, FlywheelError):
            return cause
        if isinstance(cause, ModuleNotFoundError):
            name = (cause.name or "").partition(".")[0]
            if not name or name in _OWN or util.find_spec(name) is not None:
                return None
            return _make_missing(name, kind)
        fault = classify(cause)
        if fault is not None:
            return _describe(fault, cause, None if place is None else str(place), kind, note)
    return None


def require_packages(*names: str) -> None:
    """Raise FlywheelError if a package is not installed, with what to install."""
    for name in names:
        if util.find_spec(name) is None:
            raise _make_missing(name)


def _make_missing(module: str, kind: type[FlywheelError] = FlywheelError) -> FlywheelError:
    """Return the error of a missing module, with how to install it from a checkout or a wheel."""
    hint = f"Install it: pip install {module}"
    for line in metadata.requires("kernel-flywheel") or []:
        required, _, extra = line.partition("; extra == ")
        match = re.match(r"[\w.-]+", required)
        extra = extra.strip("'\"")
        if match is None or match[0].replace("-", "_") != module or extra in ("all", "dev"):
            continue
        of = f"[{extra}]" if extra else ""
        wheel = f"kernel_flywheel-{metadata.version('kernel-flywheel')}-py3-none-any.whl"
        hint = f"Install it: pip install '.{of}' in a checkout, or pip install '{wheel}{of}'."
        break
    return kind(f"the package {module} is not installed", hint)


@contextmanager
def at(
    place: Path | str, kind: type[FlywheelError] = FlywheelError, note: str = ""
) -> Generator[None]:
    """Raise faults of the world as FlywheelErrors; those that name no place get this one."""
    try:
        yield
    except FlywheelError:
        raise
    except Exception as error:
        fault = explain(error, place, kind, note)
        if fault is None:
            raise
        raise fault from error


@contextmanager
def replace_file(file: Path) -> Generator[Path]:
    """Yield a path to write to, which replaces the file at the end; after an error it is gone."""
    target = file.resolve()
    partial = target.with_name(f"{target.name}.partial")
    with at(file):
        try:
            yield partial
            partial.replace(target)
        except BaseException as error:
            partial.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is not None:
                error.filename = error.filename2 = str(file)
            raise


def raise_unless_damage(error: Exception, place: Path | str) -> None:
    """Raise a fault of the host that keeps a file from being read; do nothing for other errors.

    A file that is missing, or that its disk cannot read, is damaged.
    """
    kind = classify(error)
    if kind is not None and not (isinstance(error, OSError) and error.errno):
        kind = _test_place(kind, _find_place(error) or str(place))
    if kind not in (None, "missing", "unusable", "device", "damaged", "engine"):
        fault = explain(error, place, LakeUnreachable)
        assert fault is not None
        raise fault from error


def classify(error: BaseException) -> str | None:
    """Return the kind of a fault of the world, a key of `FAULTS`, or None; no cause counts.

    >>> classify(OSError(28, "No space left on device")), classify(KeyError("disk is full"))
    ('full', None)
    """
    text = str(error).lower()
    classes = {(one.__module__.partition(".")[0], one.__name__) for one in type(error).__mro__}
    libraries, names = {library for library, _ in classes}, {name for _, name in classes}
    if ("torch", "OutOfMemoryError") in classes:
        return "gpu memory"
    if type(error) is RuntimeError:  # of torch, and of the interpreter
        words = {"cuda out of memory": "gpu memory", "defaultcpuallocator": "memory"}
        words |= {"can't start new thread": "processes", "symlink loop": "links"}
        return next((words[one] for one in words if one in text), None)
    if isinstance(error, MemoryError):
        return "memory"
    if libraries & _HTTP:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(status, int):
            return _STATUSES.get(status, "server" if status >= 500 else "refused")
        name = type(error).__name__
        if "certificate" in text:
            return "tls"
        if "Timeout" in name:
            return "timeout"
        if any(part in name for part in ("Protocol", "ReadError", "WriteError", "CloseError")):
            return "broken"
        if any(part in name for part in ("Connect", "Proxy", "Offline", "URLError")):
            return "network"
        return _ERRNOS.get(error.errno or 0) if isinstance(error, OSError) else None
    if libraries & _LIBRARIES or (isinstance(error, OSError) and error.errno is None):
        if names & _OF_SQL:
            return None
        is_file_error = "IOException" in names
        if "duckdb" in type(error).__module__ and not names & {
            "IOException",
            "OutOfMemoryException",
        }:
            # What DuckLake passes on comes last; a query or a row may be quoted before it.
            text = text.rpartition('": ')[2]
        fault = _find_words(text, (*_STORAGE_WORDS, *_WORDS))
        if fault is None and "OutOfMemoryException" in names:
            return "query memory"
        if fault is None and is_file_error:
            folder = _find_folder(_find_place(error))
            if folder is not None and not os.access(folder, os.R_OK | os.X_OK):
                return "denied"  # DuckDB finds no file there
            return "missing" if "no such file" in text else "unusable"
        return fault
    if not isinstance(error, OSError):
        return None
    if "ssl" in libraries:
        return "tls" if "certificate" in text else "broken"
    if "gaierror" in names:
        return "network"
    # Arrow reports what S3 answers as an input/output error.
    return _find_words(text, _STORAGE_WORDS) or _ERRNOS.get(error.errno or 0)


def is_disconnected(error: BaseException) -> bool:
    """Return whether the connection to a PostgreSQL server is lost, or may not commit any more."""
    return any(words in str(error) for words in _LOST.split("|"))


def _describe(
    fault: str, error: BaseException, place: str | None, kind: type[FlywheelError], note: str
) -> FlywheelError:
    named = _find_place(error)
    where = named or place
    if where is not None and fault in _OF_STORAGE:
        where = where.partition("/main/")[0]  # the prefix of a lake
    if not (isinstance(error, OSError) and error.errno):
        fault = _test_place(fault, where)
    if fault == "full" and named is None and not _is_scarce(where):
        folders = (tempfile.gettempdir(), os.getcwd(), os.path.expanduser("~"))
        where = next((folder for folder in folders if _is_scarce(folder)), None) or where
    scratch = None if fault != "full" or where is None else _SCRATCH.search(where)
    if scratch is not None or (fault == "full" and where == tempfile.gettempdir()):
        fault = "temporary"
        where = where if scratch is None else scratch[1]
    if fault in ("missing", "file", "exists") and where is not None and "://" not in where:
        fault, where = _find_obstacle(fault, Path(where))
    if where is None:
        is_pipe = isinstance(error, BrokenPipeError)
        where = "another program" if is_pipe else "the server" if fault in _OF_SERVERS else "a file"
    message, hint = FAULTS[fault]
    size = _BOUND.search(str(error))
    # The last file of ours that the error passed through is the one that asked the query.
    own = Path(__file__).parents[1]
    frames = reversed(traceback.extract_tb(error.__traceback__))
    inside = (Path(frame.filename) for frame in frames if own in Path(frame.filename).parents)
    files = (file.relative_to(own) for file in inside)
    query = next((str(file) for file in files if file.parts[0] in _OWN), "this command")
    message = message.format(
        place=where, query=query, size="it may use" if size is None else size[1]
    )
    if fault == "damaged":
        note = ""  # what is kept in a damaged file cannot be promised
    is_clear = fault in _CLEAR or (isinstance(error, OSError) and fault not in _OF_SERVERS)
    if isinstance(error, Exception) and not is_clear:
        message = f"{message}: {summarize_error(error)}"
    if fault in _OF_STORAGE and kind is FlywheelError:
        kind = LakeUnreachable
    return (CommitConflict if fault in ("locked", "conflict") else kind)(
        message, f"{hint} {note}".rstrip()
    )


def list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it groups, and its causes."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += getattr(cause, "exceptions", ())
        if cause.__cause__ is not None:
            waiting.append(cause.__cause__)


def _find_place(error: BaseException) -> str | None:
    if isinstance(error, OSError) and error.filename is not None:
        # Of a copy, the second file is the one that is written.
        named = error.filename if error.filename2 is None else error.filename2
        path = "" if isinstance(named, int) else os.fsdecode(named)
        return None if not path or _PARTIAL.search(path) else path
    try:
        request: Any = getattr(error, "request", None)
    except RuntimeError:  # of httpx, where no request is known
        request = None
    if request is not None:
        return str(request.url)
    match = _NAMED.search(str(error))
    return None if match is None else match[1]


def _test_place(fault: str, place: str | None) -> str:
    """Return what keeps a place from being written, where SQLite knows only that it cannot be.

    It says the same of a folder that is read-only, and of one without room for shared memory.
    """
    folder = _find_folder(place)
    if fault not in ("device", "denied", "unopened") or folder is None or place is None:
        return fault
    try:
        # So few more that a database may need more.
        left = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - len(os.listdir("/proc/self/fd"))
    except OSError as error:
        left = 0 if error.errno == errno.EMFILE else _DATABASE_FILES
    if left < _DATABASE_FILES:
        return "files"
    if os.statvfs(folder).f_flag & os.ST_RDONLY:
        return "read-only"
    existing = [folder, *([Path(place)] if os.path.exists(place) else [])]
    if not all(os.access(path, os.R_OK | os.W_OK) for path in existing):
        return "denied"
    if _is_scarce(place):
        return "full"
    is_limited = resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY
    return "large" if is_limited else fault


def _find_obstacle(fault: str, path: Path) -> tuple[str, str]:
    """Return the part of a path that is a file, or does not exist."""
    for part in reversed((path, *path.parents)):
        if fault == "missing" and not os.path.lexists(part):
            return fault, str(part)
        if fault != "missing" and os.path.isfile(part):
            return "file", str(part)
    # A folder that is there but takes no new files, as /proc.
    return "unusable" if fault == "missing" else fault, str(path)


def _is_scarce(place: str | None) -> bool:
    folder = _find_folder(place)
    if folder is None:
        return False
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize < _SCARCE_BYTES


def _find_folder(place: str | None) -> Path | None:
    """Return the nearest folder that exists; None for a place that is not on this host."""
    if place is None or "://" in place:
        return None
    path = Path(place).absolute()
    return next((folder for folder in (path, *path.parents) if os.path.isdir(folder)), None)


def _find_words(text: str, table: tuple[tuple[str, str], ...]) -> str | None:
    return next(
        (kind for kind, words in table if any(map(text.__contains__, words.split("|")))), None
    )
