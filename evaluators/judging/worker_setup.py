"""How the workers of a bench are set up: device, threads, flags of the policy, cache flush."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from evaluators.clock.empty_kernel import time_empty_kernel
from evaluators.device import cache_flush
from evaluators.device.placement import count_threads
from evaluators.judging.case import Policy
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.template import Template
from evaluators.sandbox.worker_process import Share
from evaluators.worker.builds.cache import Build
from evaluators.worker.handle import Deadlines, Sizes, StartedWorker, WorkerHandle, start_worker


class WorkerSetup:
    """Starts and prepares workers of one device."""

    def __init__(self, device: str, share: Share, template: Template | None = None) -> None:
        self.device = device
        self._share = share
        self.threads = count_threads()
        """Number of threads of loops, in the workers and in this process."""
        self.template = template or Template(self.threads)
        """The process that forks the fork servers of the workers."""
        self.policy: Policy = "torch_default"
        """Policy that sets the flags of workers started from here on."""
        torch.set_num_threads(self.threads)
        if device == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        words = cache_flush.compute_flush_bytes(device) // torch.int32.itemsize
        self._flushed = torch.ones(words, dtype=torch.int32, device=device)
        cache_flush.flush_caches(self._flushed)
        if device == "cuda":
            time_empty_kernel()
            # The driver waits for an idle GPU to load a kernel, which none is behind a gate.
            torch.cuda.synchronize()

    def start(
        self,
        server: ForkServer,
        files: Mapping[str, str],
        limits: Limits,
        sizes: Sizes | None,
        build: Build | None = None,
        policy: Policy | None = None,
    ) -> StartedWorker:
        """Start the process of a worker (`start_worker`) with the flags of a policy.

        Without a policy it is the present one. Raises SandboxFailed.
        """
        flags = policy or self.policy
        setting = {
            "device": self.device,
            "threads": self.threads,
            "flush_bytes": cache_flush.compute_flush_bytes(self.device),
            "convolution_tf32": flags != "fp32_strict",
            "product_tf32": flags == "allow_tf32",
        }
        return start_worker(server, files, setting=setting, limits=limits, sizes=sizes, build=build)

    def prepare(
        self, started: StartedWorker, sizes: Sizes, deadlines: Deadlines, *, trusted: bool
    ) -> WorkerHandle:
        """Return a worker that is ready for requests. Raises SandboxFailed."""
        worker = WorkerHandle(
            started,
            sizes,
            deadlines=deadlines,
            trusted=trusted,
            flushed=self._flushed,
            share=self._share,
        )
        worker.prepare()
        return worker
