"""Works on a stream of its own, where a clock on the current stream does not measure it."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 3
_MADE = split_names(
    "Stream ExternalStream", "torch.cuda.", "torch.cuda.streams.", "torch.", "cupy.cuda."
)
_JOINED = split_names("wait_stream synchronize wait_event wait CUDAGraph graph")
_NATIVE = split_names(
    "cudaStreamCreate cudaStreamCreateWithFlags cudaStreamCreateWithPriority cuStreamCreate "
    "getStreamFromPool"
)
_NATIVE_JOINED = split_names(
    "cudaStreamSynchronize cudaStreamWaitEvent cudaDeviceSynchronize cuStreamSynchronize "
    "cudaEventSynchronize cuStreamWaitEvent cudaStreamBeginCapture"
)


def find(source: Source) -> Iterator[Hit]:
    """Yield created streams, with more confidence if nothing joins them."""
    for module in source.modules:
        # A capture needs a stream of its own; its replay runs on the current one.
        joined = any(name.rpartition(".")[2] in _JOINED for _, name in module.calls)
        for call, name in module.calls:
            if name in _MADE:
                yield module.hit(call, 0.4 if joined else 0.8)
    for native in source.native:
        joined = any(call.name in _NATIVE_JOINED for call in native.calls)
        yield from native.hits(_NATIVE, 0.4 if joined else 0.9)
