"""Remarks below a table are what its figures say."""

from __future__ import annotations

from ncarl.reproduce.summary import Entry
from ncarl.reproduce.verdicts import table_remarks


def entry(method, setting, error, printed, protocol="paper"):
    group = setting.split(",")[0]
    return Entry("table2", protocol, method, method, setting, group, 0.5, "done",
                 error=error, printed=printed)  # fmt: skip


def test_columns_above_the_printed_error_are_named_with_both_figures():
    rows = [
        entry("ncarl", "ML-100K, 0.4", 0.27334, 0.2733),  # equal to the printed digits
        entry("ncarl", "ML-100K, 0.5", 0.27876, 0.2787),
        entry("nuclear", "ML-100K, 0.5", 0.9, 0.2859),
    ]
    (said,) = table_remarks(rows, "error")
    assert "in 1 of 2 columns" in said
    assert "ML-100K, 0.5 (0.2788 against 0.2787)" in said
    assert "ML-100K, 0.4" not in said


def test_nothing_above_is_said_too_and_each_protocol_has_its_own():
    rows = [
        entry("ncarl", "500x300", 0.03, 0.0344),
        entry("ncarl", "500x300", 0.04, 0.0344, "honest"),
    ]
    paper, honest = table_remarks(rows, "error")
    assert "paper protocol" in paper
    assert "1 of 1 columns; nowhere above it" in paper
    assert "honest protocol" in honest
    assert "0 of 1 columns" in honest


def test_pictures_are_compared_as_ratios_to_nuclear():
    rows = [
        entry("ncarl", "Image-1, 0.5", 0.15, 0.13),
        entry("nuclear", "Image-1, 0.5", 0.20, 0.14),
        entry("ncarl", "Image-2, 0.5", 0.15, 0.13),  # no Nuclear there
    ]
    (said,) = table_remarks(rows, "error")
    assert "Image-1, 0.5: 0.750 (paper 0.929)" in said
    assert "Image-2" not in said


def test_times_and_rows_without_figures_call_for_no_remark():
    rows = [entry("ncarl", "ML-100K", 0.3, 0.2), entry("bias", "ML-100K", 0.2, None)]
    assert table_remarks(rows, "seconds") == []
    assert table_remarks(rows[1:], "error") == []
    assert table_remarks([], "error") == []
