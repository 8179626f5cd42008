"""Starts threads or processes, which may continue after the answer."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 3
_THREADS = (
    split_names("Thread Timer _start_new_thread", "threading.")
    | split_names("start_new_thread", "_thread.")
    | split_names("ThreadPoolExecutor ProcessPoolExecutor", "concurrent.futures.")
    | split_names(
        "Process Pool Queue Manager get_context", "multiprocessing.", "torch.multiprocessing."
    )
    | split_names("ThreadPool", "multiprocessing.pool.")
    | split_names("fork forkpty posix_spawn posix_spawnp spawnl spawnv", "os.")
    | split_names("run create_task get_event_loop", "asyncio.")
    | {"torch.jit.fork", "torch.futures.Future"}
)
_PROCESSES = split_names(
    "Popen run call check_call check_output getoutput", "subprocess."
) | split_names("system popen execv execve execl execvp", "os.")
_NATIVE = split_names("pthread_create fork vfork async cudaLaunchHostFunc")
_NATIVE_TYPES = split_names("thread jthread future packaged_task")


def find(source: Source) -> Iterator[Hit]:
    """Yield what starts a thread or a process; a compiler run at import weighs little."""
    yield from source.find_calls(_THREADS, 0.5, hot=0.9)
    yield from source.find_calls(_PROCESSES, 0.1, hot=0.6)
    for native in source.native:
        yield from native.hits(_NATIVE, 0.7)
        for name, line in native.types.items():
            if name in _NATIVE_TYPES:
                yield native.hit(line, 0.6)
