"""Tests that Ctrl-C and file size limits end a fit with a valid checkpoint."""

from __future__ import annotations

import signal

import pytest

from ncarl.io.files import read_archive

RUN = {"max_iter": 40, "tol": 0, "alpha": 1.0, "n_neighbors": 4}
BAYES = {"max_iter": 12, "tol": 0, "prior_strength": 0.1, "validation": 0,
         "sides": "columns"}  # fmt: skip


@pytest.mark.parametrize("every", [0.0, 1e9])
@pytest.mark.parametrize("kind", ["NCARL", "BayesianNCARL"])
def test_ctrl_c_keeps_the_last_complete_step(case, kind, every):
    options = RUN if kind == "NCARL" else BAYES
    found = case(kind, options, every=every, pause=0.05)
    assert found.run(send=signal.SIGINT, after=0.12) == 130
    (name,) = found.names
    kinds = ("checkpoint", "stages")
    header, arrays = read_archive(found.state.parent / name, *kinds)
    step = header["history"]["step"][-1] if "history" in header else arrays["em:step"]
    assert 1 <= step < options["max_iter"]
    found.assert_resumes_exactly()
    assert found.names == [name]


def test_file_size_limit_keeps_the_previous_checkpoint(case):
    found = case("NCARL", RUN)
    assert found.run(limit_at=6, limit=4000) == 7
    assert found.said.startswith("CheckpointError: checkpoint")
    assert str(found.state) in found.said
    assert "at step 7 (File too large)" in found.said
    assert "the earlier one, of step 6, is kept" in found.said
    assert "ulimit -f" in found.said
    assert found.names == ["state"]
    found.assert_resumes_exactly()


def test_file_size_limit_without_a_previous_checkpoint(case):
    found = case("NCARL", RUN, every=1e9)
    assert found.run(limit_at=6, limit=4000) == 7
    assert "at step 40 (File too large); no earlier one exists" in found.said
    assert found.names == []
