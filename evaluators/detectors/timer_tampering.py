"""Replaces clocks, events or synchronization, from Python or by hooks in native code."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 2
_CLOCKS = (
    "time.",
    "timeit.",
    "torch.cuda.Event",
    "torch.cuda.synchronize",
    "torch.cuda.streams.Event",
    "torch.cuda.current_stream",
    "torch.cuda.default_stream",
    "torch.cuda.Stream",
    "torch.utils.benchmark.",
    "torch.Event",
    "triton.testing.",
    "torch.autograd.profiler",
    "torch.profiler",
)
_METHODS = split_names("elapsed_time perf_counter perf_counter_ns synchronize record monotonic")
_HOOKS = split_names("mprotect dlsym dl_iterate_phdr dlmopen PLTHook plthook_open subhook_new")
_SYMBOLS = split_names(
    "cudaEventElapsedTime cudaEventRecord cudaEventSynchronize cudaDeviceSynchronize "
    "clock_gettime gettimeofday cuEventElapsedTime cuEventRecord"
)


def is_clock(name: str) -> bool:
    """Say whether a full name is a clock."""
    return name.startswith(_CLOCKS) or name.rpartition(".")[2] in _METHODS


def find(source: Source) -> Iterator[Hit]:
    """Yield writes to clocks, native functions that take a clock's name, and hooks."""
    for module, node, name in source.find_patches():
        if is_clock(name):
            yield module.hit(node, 0.9)
    for native in source.native:
        yield from native.hits(_HOOKS, 0.7)
        for name in sorted(_SYMBOLS & set(native.functions)):
            yield native.hit(native.functions[name], 0.9)
