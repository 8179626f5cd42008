"""Deletes files, closes descriptors, changes limits, signals or the process itself."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, words

VERSION = 1
CLASS = "harm"
_FILES = words(
    "remove unlink rmdir removedirs rename replace chmod chown truncate symlink", "os."
) | {
    "shutil.rmtree",
    "shutil.move",
}
_PROCESS = (
    words("setsid setpgid closerange close nice sched_setaffinity setuid dup2 kill abort", "os.")
    | words("signal setitimer alarm pthread_sigmask sigwait raise_signal", "signal.")
    | words("setrlimit", "resource.")
    | words("settrace setprofile setswitchinterval addaudithook", "sys.")
    | words("freeze disable set_threshold", "gc.")
    | {"faulthandler._sigsegv", "threading.settrace", "threading.setprofile"}
)
_NATIVE = words(
    "unlink remove rmdir setsid setpgid prctl sigaction signal raise setrlimit closefrom"
)


def find(source: Source) -> Iterator[Hit]:
    """Yield what harms the machine or the harness; cleaning up after a build weighs little."""
    yield from source.called(_FILES, 0.3, hot=0.8)
    yield from source.called(_PROCESS, 0.5, hot=0.8)
    for native in source.native:
        yield from native.hits(_NATIVE, 0.5)
