"""What is timed on a GPU: nothing beside the flushes, and nothing after the end."""

from __future__ import annotations

import pytest
import torch

from evaluators.worker.loop import Streams

_CYCLES = 4_000_000  # 2 ms at 2 GHz


@pytest.mark.gpu
@pytest.mark.parametrize("driver_knows_all", [True, False])
@pytest.mark.clock
def test_work_on_a_stream_of_its_own_is_timed(
    driver_knows_all: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    streams, other = Streams(), torch.cuda.Stream()
    assert streams.knows_all
    monkeypatch.setattr(streams, "knows_all", driver_knows_all)
    flushed = torch.zeros(1 << 28, dtype=torch.int32, device="cuda")

    def time_work(ordered: bool, launch: bool) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        for _ in range(16):
            flushed.add_(1)
        if ordered:
            streams.hold()
        start.record()
        if launch:
            with torch.cuda.stream(other):
                torch.cuda._sleep(_CYCLES)
        if ordered:
            streams.join()
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    time_work(ordered=True, launch=True)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    torch.cuda._sleep(_CYCLES)
    end.record()
    end.synchronize()
    alone_ms = begin.elapsed_time(end)
    assert time_work(ordered=True, launch=True) > 0.8 * alone_ms
    assert time_work(ordered=False, launch=True) < 0.2 * alone_ms
    assert time_work(ordered=True, launch=False) < 0.2 * alone_ms
