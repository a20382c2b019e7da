"""Tests that probable missing-value codes are reported and others are not."""

import numpy as np
import pytest

from ncarl.io.tables import missing_code_warnings


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ([31, -999, 47, -999, 80], "-999 occurs 2 times"),
        ([1.5, 99, 3.5, 99, 2.0], "99 occurs 2 times"),
        (
            [31000, -99, 47000, -99, 999],
            "-99 occurs 2 times",
        ),  # the only negative value
        ([1, 2, 3, 999, np.nan], None),  # occurs once
        ([-40, -99, 20, -99, 60], None),  # within the range
        ([990, 999, 999, 1010, 1000], None),
        ([98, 99, 98, 99, 98], None),
        ([500, 999, 600, 999, 550], None),  # plausible value
        ([-999, -999, np.nan, -999, -999], None),  # constant column
        ([-1, -1, 3, 2, 5], None),  # not a common code
        ([np.nan] * 5, None),
    ],
)
def test_outlying_code_is_reported(column, told):
    values = np.array([[1, x] for x in column], dtype=float)
    found = missing_code_warnings(values, ["one", "x"])
    assert len(found) == (told is not None)
    if told is not None:
        assert told in found[0] and " in x, far" in found[0] and "--na" in found[0]


def test_columns_with_the_same_code_are_reported_together():
    values = np.array([[20.0, 1.5, 99.0], [-999.0, -999.0, 99.0], [30.0, 2.5, 1.0]])
    values = np.vstack([values, values, [[25.0, 2.0, 2.0]]])
    first, second = missing_code_warnings(values, ["age", "size", "stars"])
    assert first.startswith("-999 occurs 4 times in age, size, far")
    assert second.startswith("99 occurs 4 times in stars, far")


def test_command_warns_and_the_suggested_option_works(ncarl, tmp_path):
    rows = [f"{i % 5}.5,{-999 if i % 6 == 0 else 20 + i % 9}" for i in range(40)]
    (tmp_path / "x.csv").write_text("a,age\n" + "\n".join(rows) + "\n")
    asked = ("complete", tmp_path / "x.csv", "-o", tmp_path / "o.csv", "--overwrite")
    said = " ".join(ncarl(*asked, "--method", "bias").stderr.split())
    assert "warning: -999 occurs 7 times in age" in said
    again = ncarl(*asked, "--method", "bias", "--na", "-999")
    assert "-999" not in again.stderr
    assert "-999" not in (tmp_path / "o.csv").read_text()
