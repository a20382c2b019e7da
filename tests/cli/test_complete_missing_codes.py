"""Numbers that seem to mean missing are told of, others are left in peace."""

import numpy as np
import pytest

from ncarl.io.tables import missing_code_warnings


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ([31, -999, 47, -999, 80], "-999 stands 2 times"),
        ([1.5, 99, 3.5, 99, 2.0], "99 stands 2 times"),
        (
            [31000, -99, 47000, -99, 999],
            "-99 stands 2 times",
        ),  # nothing else is negative
        ([1, 2, 3, 999, np.nan], None),  # once
        ([-40, -99, 20, -99, 60], None),  # among the others
        ([990, 999, 999, 1010, 1000], None),
        ([98, 99, 98, 99, 98], None),
        ([500, 999, 600, 999, 550], None),  # may well be one of them
        ([-999, -999, np.nan, -999, -999], None),  # nothing else
        ([-1, -1, 3, 2, 5], None),  # not what people write for missing
        ([np.nan] * 5, None),
    ],
)
def test_a_number_far_from_the_rest_is_told_of(column, told):
    values = np.array([[1, x] for x in column], dtype=float)
    found = missing_code_warnings(values, ["one", "x"])
    assert len(found) == (told is not None)
    if told is not None:
        assert told in found[0] and " in x, far" in found[0] and "--na" in found[0]


def test_columns_with_the_same_number_are_told_of_together():
    values = np.array([[20.0, 1.5, 99.0], [-999.0, -999.0, 99.0], [30.0, 2.5, 1.0]])
    values = np.vstack([values, values, [[25.0, 2.0, 2.0]]])
    first, second = missing_code_warnings(values, ["age", "size", "stars"])
    assert first.startswith("-999 stands 4 times in age, size, far")
    assert second.startswith("99 stands 4 times in stars, far")


def test_the_command_warns_of_it_and_its_advice_can_be_followed(ncarl, tmp_path):
    rows = [f"{i % 5}.5,{-999 if i % 6 == 0 else 20 + i % 9}" for i in range(40)]
    (tmp_path / "x.csv").write_text("a,age\n" + "\n".join(rows) + "\n")
    asked = ("complete", tmp_path / "x.csv", "-o", tmp_path / "o.csv", "--overwrite")
    said = " ".join(ncarl(*asked, "--method", "bias").stderr.split())
    assert "warning: -999 stands 7 times in age" in said
    again = ncarl(*asked, "--method", "bias", "--na", "-999")
    assert "-999" not in again.stderr
    assert "-999" not in (tmp_path / "o.csv").read_text()
