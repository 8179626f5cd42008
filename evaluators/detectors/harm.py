"""Deletes files, closes descriptors, changes limits, signals or the process itself."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 3
_FILES = split_names(
    "remove unlink rmdir removedirs rename replace chmod chown truncate symlink", "os."
) | {
    "shutil.rmtree",
    "shutil.move",
}
_PROCESS = (
    split_names(
        "setsid setpgid closerange close nice sched_setaffinity setuid dup2 kill abort", "os."
    )
    | split_names("signal setitimer alarm pthread_sigmask sigwait raise_signal", "signal.")
    | split_names("setrlimit", "resource.")
    | split_names("settrace setprofile setswitchinterval addaudithook", "sys.")
    | split_names("freeze disable set_threshold", "gc.")
    | {"faulthandler._sigsegv", "threading.settrace", "threading.setprofile"}
)
_NATIVE = split_names(
    "unlink remove rmdir setsid setpgid prctl sigaction signal raise setrlimit closefrom"
)


def find(source: Source) -> Iterator[Hit]:
    """Yield calls that harm the machine or the harness; cleaning up a build has low confidence."""
    yield from source.find_calls(_FILES, 0.3, hot=0.8)
    yield from source.find_calls(_PROCESS, 0.5, hot=0.8)
    for native in source.native:
        yield from native.hits(_NATIVE, 0.5)
