"""Tests of connections of the Dask engine: choice of the cluster, shutdown."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

from ncarl import NCARL

distributed = pytest.importorskip("distributed")
import psutil  # noqa: E402  (Dask needs it)

from ncarl.engines.dask import Dask, LostWorkersError, place_blocks  # noqa: E402

FEW = {"max_iter": 2, "tol": 0, "n_neighbors": 4}


def list_running():
    """Names of threads, except Dask's permanent pool, and ids of child processes."""
    names = [t.name for t in threading.enumerate() if "Offload" not in t.name]
    children = [
        child.pid
        for child in psutil.Process().children(recursive=True)
        if "resource_tracker" not in " ".join(child.cmdline())
    ]
    return sorted(names), sorted(children)


def wait_for(check):
    """Whether a check becomes true within ten seconds."""
    for _ in range(200):
        if check():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_close_stops_all_threads_and_processes(kind, X):
    before = list_running()
    with Dask(kind, n_workers=1, device="cpu") as engine:
        NCARL(engine=engine, **FEW).fit(X)
        assert list_running() != before
    assert wait_for(lambda: list_running() == before), list_running()
    engine.close()  # may be called twice


def test_garbage_collected_engine_closes_its_cluster():
    before = list_running()
    engine = Dask("threads", n_workers=1)
    cluster = engine.link.owned[1]
    del engine
    gc.collect()
    assert wait_for(lambda: cluster.status == distributed.Status.closed)
    assert wait_for(lambda: list_running() == before)


def test_closed_engine_raises(X):
    engine = Dask("threads", n_workers=1)
    engine.close()
    with pytest.raises(RuntimeError, match=r"closed; create another.*'threads'"):
        NCARL(engine=engine).fit(X)


def test_cluster_is_started_lazily():
    before = list_running()
    engine = Dask("processes")
    assert list_running() == before
    engine.close()


def listening_addresses():
    """Addresses at which this process and its children listen."""
    here = psutil.Process()
    return {
        connection.laddr.ip
        for process in (here, *here.children(recursive=True))
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }


def test_servers_listen_on_localhost_only(engine):
    assert engine.link.n_threads == 2
    assert listening_addresses() == {"127.0.0.1"}


def test_script_without_close_exits_silently(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import numpy as np
            from ncarl import NCARL
            from ncarl.engines.dask import Dask, place_blocks

            if __name__ == "__main__":
                engine = Dask("processes", n_workers=1, kernel="numpy", device="cpu")
                X = np.arange(12.0).reshape(4, 3)
                X[0, 0] = np.nan
                NCARL(engine=engine, max_iter=2, tol=0).fit(X)
                kept = place_blocks(engine.link, [1, 2])
                print(list(engine.link.owned[1].workers.values())[0].pid)
            """
        )
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert wait_for(lambda: not psutil.pid_exists(int(done.stdout)))


def test_current_client_is_used_and_left_open(threads, X):
    with threads.link.client.as_current():
        engine = Dask(device="cpu")
        assert engine.link.client is threads.link.client
    NCARL(engine=engine, **FEW).fit(X)
    engine.close()
    assert threads.link.client.status == "running"


def test_threads_are_started_without_a_current_client():
    with Dask(n_workers=1) as engine:
        assert engine.link.description == "threads of this machine"


@pytest.mark.parametrize("give", ["client", "cluster", "address"])
def test_given_cluster_is_used_and_left_open(processes, give, X):
    client, cluster = processes.link.owned
    given = {"client": client, "cluster": cluster, "address": cluster.scheduler_address}
    with Dask(given[give], n_workers=2, device="cpu") as engine:
        assert engine.link.n_threads == 2
        NCARL(engine=engine, **FEW).fit(X)
    assert client.status == "running"
    assert len(client.nthreads()) == 2


@pytest.mark.parametrize("give", ["client", "cluster"])
def test_pickled_engine_reconnects(processes, give):
    client, cluster = processes.link.owned
    engine = Dask(client if give == "client" else cluster, kernel="numpy", device="cpu")
    copy = pickle.loads(pickle.dumps(engine))
    assert copy == Dask(cluster.scheduler_address, kernel="numpy", device="cpu")
    with copy:
        assert copy.link.client is not client
        assert copy.link.n_threads == 2


def test_missing_scheduler_raises():
    engine = Dask("tcp://127.0.0.1:9", timeout=0.5)
    with pytest.raises(LostWorkersError, match=r"no Dask scheduler answers.*127.0.0.1"):
        engine._n_blocks(10, 10)


def test_too_few_workers_raise(threads):
    engine = Dask(threads.link.client, n_workers=3, timeout=0.3)
    with pytest.raises(LostWorkersError, match=r"n_workers=3.* has 2 after 0.3"):
        engine._n_blocks(10, 10)


@pytest.mark.parametrize(("found", "said"), [(None, "no ncarl"), ("0", "ncarl 0")])
def test_other_ncarl_version_on_workers_raises(threads, monkeypatch, found, said):
    client = threads.link.client
    monkeypatch.setattr(client, "run", lambda function: {"tcp://other": found})
    with pytest.raises(RuntimeError, match=rf"tcp://other has {said}, here is"):
        Dask(client)._n_blocks(10, 10)


def test_engine_inside_a_task_raises(threads):
    def nested():
        return Dask("threads")._n_blocks(10, 10)

    with pytest.raises(RuntimeError, match=r"inside a task.*engine='threads'"):
        threads.link.client.submit(nested).result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_engine_in_a_forked_process_raises(threads, monkeypatch):
    monkeypatch.setattr(os, "getpid", lambda: -1)  # simulates a fork
    with pytest.raises(RuntimeError, match="create a new engine"):
        threads._n_blocks(10, 10)
    threads.close()  # must not close the cluster of the parent
    monkeypatch.undo()
    assert threads._n_blocks(10, 10) >= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "proceses"}, "cluster must be 'threads'.*'proceses'"),
        ({"cluster": 3}, "cluster must be 'threads'.*got 3"),
        ({"n_workers": 0}, "n_workers must be a whole number.*got 0"),
        ({"kernel": "torch"}, "kernel must be one of .*got 'torch'"),
        ({"device": 0}, "device must be the name of a torch device.*got 0"),
        ({"timeout": -1}, "timeout must be a finite number above 0, got -1"),
    ],
)
def test_invalid_parameters_raise(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Dask(**options)


def test_given_row_kernel_is_used(threads, X):
    def backend_of(block, *, backend):
        return backend

    engine = Dask(threads.link.client, kernel="numpy", device="cpu")
    assert set(engine.map(backend_of, place_blocks(engine.link, [1, 2]))) == {"numpy"}
    assert "numpy rows" in engine.describe()
    assert np.isfinite(NCARL(engine=engine, **FEW).fit_transform(X)).all()
