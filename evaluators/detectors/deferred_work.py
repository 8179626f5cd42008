"""Starts threads or processes, which may go on after the answer was given."""

from __future__ import annotations

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, words

VERSION = 1
CLASS = "deferred_work"
_THREADS = (
    words("Thread Timer _start_new_thread", "threading.")
    | words("start_new_thread", "_thread.")
    | words("ThreadPoolExecutor ProcessPoolExecutor", "concurrent.futures.")
    | words("Process Pool Queue Manager get_context", "multiprocessing.", "torch.multiprocessing.")
    | words("ThreadPool", "multiprocessing.pool.")
    | words("fork forkpty posix_spawn posix_spawnp spawnl spawnv", "os.")
    | words("run create_task get_event_loop", "asyncio.")
    | {"torch.jit.fork", "torch.futures.Future"}
)
_PROCESSES = words("Popen run call check_call check_output getoutput", "subprocess.") | words(
    "system popen execv execve execl execvp", "os."
)
_NATIVE = words("pthread_create fork vfork async cudaLaunchHostFunc")
_NATIVE_TYPES = words("thread jthread future packaged_task")


def find(source: Source) -> Iterator[Hit]:
    """Yield what starts a thread or a process; a compiler run at import weighs little."""
    yield from source.called(_THREADS, 0.5, hot=0.9)
    yield from source.called(_PROCESSES, 0.1, hot=0.6)
    for native in source.native:
        yield from native.hits(_NATIVE, 0.7)
        for name, line in native.types.items():
            if name in _NATIVE_TYPES:
                yield native.hit(line, 0.6)
