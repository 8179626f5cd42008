"""Reserves L2 cache for itself, which a flush between runs does not clear."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_CALLS = split_names(
    "cudaStreamSetAttribute cuStreamSetAttribute cudaDeviceSetLimit cuCtxSetLimit "
    "cudaGraphKernelNodeSetAttribute cudaLaunchKernelExC"
)
_L2 = ("PersistingL2", "PERSISTING_L2", "AccessPolicyWindow", "ACCESS_POLICY_WINDOW")


def find(source: Source) -> Iterator[Hit]:
    """Yield access policy windows and limits, with more confidence if the L2 cache is named."""
    for native in source.native:
        for call in native.calls:
            if call.name in _CALLS:
                named = any(word in argument for word in _L2 for argument in call.arguments)
                yield native.hit(call.line, 0.9 if named else 0.3)
        for name, line in native.types.items():
            if name == "cudaAccessPolicyWindow":
                yield native.hit(line, 0.8)
