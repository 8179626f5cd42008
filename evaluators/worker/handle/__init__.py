"""The judge's handle to one worker process: typed requests, and a status for every failure."""

from evaluators.sandbox.failures import Failed
from evaluators.worker.handle.deadlines import Deadlines
from evaluators.worker.handle.module_state import Parameter
from evaluators.worker.handle.sample import LaunchBlocked, Manner, Sample
from evaluators.worker.handle.sizes import Sizes
from evaluators.worker.handle.started_worker import StartedWorker, start_worker
from evaluators.worker.handle.worker_handle import WorkerHandle

__all__ = [
    "Deadlines",
    "Failed",
    "LaunchBlocked",
    "Manner",
    "Parameter",
    "Sample",
    "Sizes",
    "StartedWorker",
    "WorkerHandle",
    "start_worker",
]
