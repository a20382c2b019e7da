"""Tests of irregular text tables: numeric headers, decimal commas, comments."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

NAN = np.nan


def test_guessed_header_is_reported(table):
    for text, note in (
        (",2008,2009\nA,1,2\n", "the first line was read as the header (else: "
         "--no-header)"),
        ("1,2\n3,4\n", "no line was read as the header (else: --header)"),
    ):  # fmt: skip
        assert table(text).notes == [note]
        assert table(text, header=True).notes == table(text, header=False).notes == []


GERMAN = "name;x;y;n\n" + "".join(
    f"r{i};{'' if i == 4 else f'0,{i + 11}'};{i % 7},5;{i}\n" for i in range(40)
)


class TestDecimalCommas:
    """Numbers such as 0,13."""

    def test_are_read_and_written_with_the_option(self, table, tmp_path):
        found = table('n;x;y\na;0,5;\nb;"1,25";3\nc;?;-1,5e2\n', decimal=",")
        np.testing.assert_array_equal(
            found.values, [[0.5, NAN], [1.25, 3], [NAN, -150]]
        )
        found.write(tmp_path / "out.csv", np.full((3, 2), 9.5))
        wanted = 'n;x;y\na;0,5;9,5\nb;"1,25";3\nc;9,5;-1,5e2\n'
        assert (tmp_path / "out.csv").read_text() == wanted
        assert found.read_warnings == []

    @pytest.mark.parametrize(
        "cell", ["1.5", "1.000,5", "1,000,5", "inf", "1_0,5", "0x1,8"]
    )
    def test_do_not_make_other_cells_numbers(self, table, cell):
        with pytest.raises(ValueError, match=r"1 other cells, the first at line 3"):
            table(f"x;y\n1,5;2\n{cell};6\n3,5;4\n", decimal=",")

    def test_are_distinguished_from_separators(self, table):
        assert table("0,1;0,2;0,3\n1;2;3\n", decimal=",").values.shape == (2, 3)
        assert table("0,1\n0,2\n1\n", decimal=",").values.shape == (3, 1)
        assert table('"0,1"\n"0,2"\n', decimal=",").values.shape == (2, 1)
        assert table("x\n0,2\n1\n", decimal=",").values.shape == (2, 1)
        assert table("0,1\t5\n0,2\t6\n", "in.tsv", decimal=",").values[1, 0] == 0.2

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("x;y\n1;2\n", {"decimal": ";"}, r"--decimal must be '\.' or ',', got ';'"),
            ("x;y\n1;2\n", {"decimal": ""}, r"--decimal must be '\.' or ',', got ''"),
            ("x,y\n1,2\n", {"decimal": ","}, r"must differ.*both are ','.*first line"),
            ("x,y\n1,2\n", {"decimal": ",", "delimiter": ","}, r"must differ.*both"),
            ("x.y\n1.2\n", {"delimiter": "."}, r"must differ.*both are '\.'"),
        ],
    )
    def test_invalid_combinations_raise(self, table, text, options, message):
        with pytest.raises(ValueError, match=message):
            table(text, **options)

    def test_in_a_label_column_give_a_warning(self, table):
        found = table(GERMAN)
        assert found.columns == ["n"] and found.n_missing_in_text == 1
        (caution,) = found.read_warnings
        assert "decimal comma" in caution and "x (1 missing), y;" in caution
        assert "--decimal ," in caution and "--label" in caution
        assert table(GERMAN, labels=["x", "y"]).read_warnings == []

    def test_in_quotes_between_commas_suggest_another_option(self, table):
        (caution,) = table('x,y\n"0,5",1\n"1,5",2\n').read_warnings
        assert "write them with '.'" in caution and "--decimal" not in caution

    def test_option_without_decimal_commas_gives_a_warning(self, table):
        (caution,) = table("x;y\n0.5;1\n1.5;2\n", decimal=",").read_warnings
        assert "decimal point" in caution and "--decimal ." in caution

    def test_among_whole_numbers_are_named_in_the_error(self, table):
        with pytest.raises(ValueError, match=r"'0,5'.*--decimal ,.*--na '0,5'"):
            table("x;y\n1;2\n0,5;6\n3;4\n")
        with pytest.raises(ValueError, match=r"no column holds numbers.*--decimal"):
            table("x;y\n1,5;2,5\n")

    def test_warnings_come_even_if_the_run_is_quiet(self, ncarl, tmp_path):
        source, out = tmp_path / "in.csv", tmp_path / "out.csv"
        source.write_text(GERMAN)
        quiet = ncarl("complete", source, "-o", out, "--quiet")
        assert quiet.stderr.startswith("warning: columns that look like numbers")
        said = ncarl("complete", source, "-o", out, "--overwrite").stdout
        assert "kept, not used: name, x, y (1 missing in them)" in said

    def test_are_used_in_all_outputs(self, ncarl, tmp_path):
        source, out = tmp_path / "in.csv", tmp_path / "out.csv"
        source.write_text(GERMAN)
        run = ncarl("complete", source, "-o", out, "--decimal", ",")
        assert "40 x 3, 1 missing" in run.stdout and not run.stderr
        before, after = (p.read_text().splitlines() for p in (source, out))
        changed = [k for k in range(41) if before[k] != after[k]]
        assert changed == [5] and "." not in after[5] and "," in after[5].split(";")[1]

    def test_are_supported_by_evaluate_and_its_next_command(self, ncarl, tmp_path):
        source = tmp_path / "in.csv"
        source.write_text(GERMAN)
        words = ("evaluate", source, "--repeats", 1, "--no-compare", "--method", "bias")
        said = ncarl(*words, "--decimal", ",").stdout
        assert "40 x 3" in said and "--decimal=," in said
        # One column remains, too few to hold out entries.
        warned = ncarl(*words, expect=1).stderr
        assert warned.startswith("warning: columns that look like numbers")

    def test_option_without_effect_gives_an_error(self, fails, tmp_path):
        np.save(tmp_path / "in.npy", np.eye(3))
        out = tmp_path / "out.npy"
        said = fails("complete", tmp_path / "in.npy", "-o", out, "--decimal", ",")
        assert said == "--decimal does not apply to NPY files; omit it"
        source = tmp_path / "in.csv"
        source.write_text(GERMAN)
        said = fails("complete", source, "-o", out, "--decimal", ",", "--stream")
        assert said.startswith("--decimal is not available with --stream; ")


def test_percentages_in_a_label_column_give_a_warning(table):
    (caution,) = table("p,q\n34%,1\n,2\n3.5 %,3\n").read_warnings
    assert "percentages" in caution and "p (1 missing)" in caution
    assert table("p,q\nabout 34%,1\n,2\nwords,3\n").read_warnings == []


def test_comment_above_the_table_is_reported(table):
    with pytest.raises(ValueError, match=r"ragged.*line 1 looks like a comment"):
        table("# made by hand\na,b\n1,2\n")
    with pytest.raises(ValueError, match=r"no column.*first line if it is a comment"):
        table("# made by hand\na;b\n1;2\n")
    assert table("#a,b\n1,2\n").columns == ["#a", "b"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["evaluate", "IN", "--hide", 2], "--hide must be below 1, got 2.0"),
        (["evaluate", "IN", "--seed", -1], "--seed must be"),
        (["compare", "IN", "--methods", "foo"], "--methods must be 'auto', 'all'"),
        (["complete", "IN", "-o", "OUT", "--max-iter", 0], "--max-iter must be"),
        # A parameter of the method, not an option.
        (["complete", "IN", "-o", "OUT", "--method", "schatten", "--set", "p=7"],
         "p must be"),
    ],
)  # fmt: skip
def test_errors_name_the_option_instead_of_the_parameter(
    fails, csv, tmp_path, words, said
):
    places = {"IN": csv, "OUT": tmp_path / "out.csv"}
    assert fails(*(places.get(word, word) for word in words)).startswith(said)


def test_error_names_the_position_of_an_infinite_entry(fails, tmp_path, X_nan):
    X_nan[5, 3] = np.inf
    np.save(tmp_path / "in.npy", X_nan)
    sparse.save_npz(tmp_path / "in.npz", sparse.csr_array(np.nan_to_num(X_nan, nan=0.0,
                    posinf=-np.inf)))  # fmt: skip
    for name, sign in (("in.npy", ""), ("in.npz", "-")):
        said = fails("complete", tmp_path / name, "-o", tmp_path / f"out{name[2:]}")
        assert f"got {sign}inf at row 5, column 3 (both from 0); put NaN" in said


def test_missing_labels_in_parquet_are_counted(ncarl, tmp_path):
    words = ["a", None, "b", None, None, "c"]
    numbers = [1.0, 2.0, NAN, 4.0, 5.0, 6.0]
    frame = pd.DataFrame({"w": words, "kept": words, "x": numbers, "y": numbers[::-1]})
    frame.to_parquet(tmp_path / "in.parquet")
    options = ("--label", "kept", "--method", "bias")
    said = ncarl("complete", tmp_path / "in.parquet", "-o", tmp_path / "o.parquet",
                 *options).stdout  # fmt: skip
    assert "w, kept (3 missing in them)" in " ".join(said.split())
