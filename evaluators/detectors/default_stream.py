"""Launches on the default stream even if another stream is current, which is then wrong."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source

VERSION = 1


def find(source: Source) -> Iterator[Hit]:
    """Yield the first launch of each text that names no stream."""
    for native in source.native:
        if any("CurrentCUDAStream" in call.name for call in native.calls):
            continue
        for call in native.calls:
            if call.launch is not None and (
                len(call.launch) < 4 or call.launch[3] in {"0", "NULL"}
            ):
                yield native.hit(call.line, 0.1)
                break
