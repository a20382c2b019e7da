"""Tests of CUDA graphs and streams with fakes that need no GPU."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from ncarl.core import cuda  # noqa: E402
from ncarl.core.rows import Kernel  # noqa: E402


class Stream:
    """A fake stream that records the streams it waited for."""

    def __init__(self):
        self.waited = []

    def wait_stream(self, other):
        self.waited.append(other)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


@pytest.fixture
def main_stream(monkeypatch):
    """The main stream of a simulated graph capture."""
    main = Stream()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: main)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(cuda, "_streams_by_device", {})
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    return main


@pytest.fixture
def memory(monkeypatch):
    """State of a simulated GPU with 100 bytes of memory."""
    state = {"reserved": 0, "allocated": 0, "elsewhere": 0, "share": 1.0, "emptied": 0}

    def empty():
        state["emptied"] += 1
        state["reserved"] = state["allocated"]

    def info():
        return 100 - state["reserved"] - state["elsewhere"], 100

    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: state["reserved"])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: state["allocated"])
    monkeypatch.setattr(torch.cuda, "mem_get_info", info)
    monkeypatch.setattr(torch.cuda, "empty_cache", empty)
    share = "get_per_process_memory_fraction"
    monkeypatch.setattr(torch.cuda, share, lambda: state["share"], raising=False)
    return state


def test_branches_wait_for_the_main_stream_and_are_joined(main_stream):
    done = cuda.run_on_streams([lambda k=k: k for k in range(7)], fits=True)
    assert done == list(range(7))
    branches = main_stream.waited
    assert len(branches) == cuda.N_STREAMS
    assert all(branch.waited == [main_stream] for branch in branches)


def test_branches_are_joined_after_an_error(main_stream):
    def fail():
        raise torch.cuda.OutOfMemoryError("full")

    with pytest.raises(torch.cuda.OutOfMemoryError):
        cuda.run_on_streams([int, fail, int], fits=True)
    assert len(main_stream.waited) == 3


@pytest.mark.parametrize("fits", [True, False])
def test_jobs_run_sequentially_without_capture_or_memory(
    main_stream, fits, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: not fits)
    assert cuda.run_on_streams([lambda: 1, lambda: 2], fits=fits) == [1, 2]
    assert not main_stream.waited


def test_enough_free_memory_keeps_the_cache(memory):
    cuda.ensure_free_memory(60)
    assert memory["emptied"] == 0


@pytest.mark.parametrize("needed", [20, 80])
def test_unused_memory_is_released_if_large_or_needed(memory, needed):
    memory.update(reserved=50, allocated=10)
    cuda.ensure_free_memory(needed)
    assert memory["emptied"] == 1


@pytest.mark.parametrize("short", [{"elsewhere": 70}, {"share": 0.3}])
def test_insufficient_memory_raises(memory, short):
    memory.update(short)
    with pytest.raises(RuntimeError, match="are free"):
        cuda.ensure_free_memory(40)


class TestCaptureOrReplay:
    @pytest.fixture
    def kernel(self):
        return Kernel(np.eye(2), None, 0.0)

    def test_first_call_is_not_captured(self, kernel, monkeypatch):
        made = []

        class FakeGraph:
            def __init__(self, work, kernel, needed):
                made.append(needed)

            def replay(self, kernel):
                return ("replayed",)

        monkeypatch.setattr(cuda, "CudaGraph", FakeGraph)
        monkeypatch.setattr(cuda, "_warmed_up_keys", set())
        calls = []
        for plans in ({}, {}):
            for _ in range(3):
                found = cuda.capture_or_replay(
                    plans, "k", lambda _: ("done",), kernel, 7
                )
                calls.append(found[0])
        assert calls == ["done", *["replayed"] * 5]
        assert made == [7, 7]

    def test_failed_capture_runs_without_graph(self, kernel, monkeypatch):
        tries = []

        def refuse(*_):
            tries.append(1)
            raise torch.cuda.OutOfMemoryError("full")

        monkeypatch.setattr(cuda, "CudaGraph", refuse)
        monkeypatch.setattr(cuda, "_warmed_up_keys", {"k"})
        plans = {}
        for _ in range(3):
            found = cuda.capture_or_replay(plans, "k", lambda _: ("done",), kernel, 7)
            assert found == ("done",)
        assert len(tries) == 1


class TestCudaGraph:
    @pytest.fixture
    def graphs(self, main_stream, memory, monkeypatch):
        """Fake CUDA graphs in the order of creation."""
        made = []

        class Graph:
            def __init__(self):
                self.calls = []
                self.closing = None
                made.append(self)

            def capture_begin(self, capture_error_mode):
                self.calls.append("begin")

            def capture_end(self):
                self.calls.append("end")
                if self.closing is not None:
                    raise self.closing

            def replay(self):
                self.calls.append("replay")

        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        return made

    @pytest.fixture
    def kernel(self):
        return Kernel(torch.eye(2), torch.ones(2, 2), 1.0)

    def test_graph_uses_its_own_stream_and_replays_new_kernels(
        self, graphs, main_stream, kernel
    ):
        given = []
        graph_of_work = cuda.CudaGraph(
            lambda k: given.append(k) or ("X", "Y"), kernel, 10
        )
        (graph,) = graphs
        assert graph.calls == ["begin", "end"]
        (beside,) = main_stream.waited
        assert beside.waited == [main_stream]
        (static,) = given
        assert static.K is not kernel.K and static.s == 1.0
        other = Kernel(3.0 * torch.eye(2), torch.zeros(2, 2), 1.0)
        assert graph_of_work.replay(other) == ("X", "Y")
        assert graph.calls[-1] == "replay"
        assert torch.equal(static.K, other.K) and torch.equal(static.P, other.P)
        assert torch.equal(kernel.K, torch.eye(2))

    @pytest.mark.parametrize("closing", [None, RuntimeError("invalid")])
    @pytest.mark.parametrize("error", [KeyboardInterrupt, torch.cuda.OutOfMemoryError])
    def test_error_propagates_and_ends_the_capture(
        self, graphs, kernel, error, closing
    ):
        def work(_):
            graphs[0].closing = closing
            raise error("stop")

        with pytest.raises(error, match="stop"):
            cuda.CudaGraph(work, kernel, 10)
        assert graphs[0].calls == ["begin", "end"]

    def test_interrupt_is_not_handled_as_out_of_memory(self, graphs, kernel):
        def work(_):
            graphs[0].closing = RuntimeError("invalid")
            raise KeyboardInterrupt

        cuda._warmed_up_keys.add("interrupt")
        with pytest.raises(KeyboardInterrupt):
            cuda.capture_or_replay({}, "interrupt", work, kernel, 10)
