"""Engines: what they check, and what they leave behind."""

from __future__ import annotations

import threading
import time

import pytest
from threadpoolctl import threadpool_info

from ncarl.engines import Threads, blas_threads, pick_engine


def blas_settings():
    return [
        lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"
    ]


@pytest.mark.parametrize("n_jobs", [0, -1, 2.5, "x", True])
def test_a_senseless_number_of_jobs_is_refused(n_jobs):
    with pytest.raises(ValueError, match="n_jobs must be a whole number"):
        Threads(n_jobs=n_jobs)


def test_an_unknown_row_kernel_is_refused():
    with pytest.raises(ValueError, match="rows must be"):
        Threads(rows="numbaa")


def test_contexts_that_overlap_leave_blas_as_it_was():
    before = blas_settings()
    inside = []

    def hold(delay, length):
        time.sleep(delay)
        with blas_threads(1):
            inside.append(blas_settings())
            time.sleep(length)

    threads = [
        threading.Thread(target=hold, args=times) for times in ((0, 0.1), (0.05, 0.1))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == [[1] * len(before)] * 2
    assert blas_settings() == before


def test_an_object_that_is_no_engine_is_told_what_it_lacks():
    with pytest.raises(TypeError, match="place, map, dense_work and describe"):
        pick_engine(object())
