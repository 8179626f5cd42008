"""Reserves L2 cache for itself, which a flush between runs does not clear."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 2
_CALLS = split_names(
    "cudaStreamSetAttribute cuStreamSetAttribute cudaDeviceSetLimit cuCtxSetLimit "
    "cudaGraphKernelNodeSetAttribute cudaLaunchKernelExC"
)
_L2 = ("PersistingL2", "PERSISTING_L2", "AccessPolicyWindow", "ACCESS_POLICY_WINDOW")
_KEEPS = ("PersistingL2", "PERSISTING_L2", "AccessPropertyPersisting", "ACCESS_PROPERTY_PERSISTING")


def find(source: Source) -> Iterator[Hit]:
    """Yield access policy windows and limits, with more confidence if the L2 cache is named."""
    for native in source.native:
        # A window that streams keeps nothing.
        keeps = "cudaAccessPropertyStreaming" not in native.words or any(
            name in word for name in _KEEPS for word in native.words
        )
        for call in native.calls:
            if call.name in _CALLS:
                named = any(word in argument for word in _L2 for argument in call.arguments)
                yield native.hit(call.line, 0.9 if named and keeps else 0.3)
        for name, line in native.types.items():
            if name == "cudaAccessPolicyWindow":
                yield native.hit(line, 0.8 if keeps else 0.3)
