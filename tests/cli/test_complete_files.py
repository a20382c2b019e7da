"""Tests of all file formats: reading, preserved content, errors."""

from __future__ import annotations

import gzip

import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io, sparse

from ncarl.io.tables import ReadOptions, detect_format, read_table

NAN = np.nan


def write_filled(table, path, fill=9.5, every=False):
    """Bytes of a table written with one number in its missing cells."""
    table.write(path, np.full(table.values.shape, fill), replace_observed=every)
    return path.read_bytes()


ODD = (
    b'\xef\xbb\xbfid;"a ""x""";b;note\r\n'
    b'r1;01.50;;"x; y"\r\n'
    b'"r 2";"2";+3e0;caf\xe9\r\n'
    b"\r\n"
    b'r3; 4 ;?;"two\r\nlines"'
)


def test_only_missing_cells_of_a_text_table_change(table, tmp_path):
    found = table(ODD)
    assert found.columns == ['a "x"', "b"]
    assert found.unused_columns == ["id", "note"]
    np.testing.assert_array_equal(found.values, [[1.5, NAN], [2, 3], [4, NAN]])
    wanted = ODD.replace(b"50;;", b"50;9.5;").replace(b"?", b"9.5")
    assert write_filled(found, tmp_path / "out.csv") == wanted


def test_replacing_every_number_keeps_header_and_labels(table, tmp_path):
    found = table("n,a,b\nx,1,\ny,2,3\n")
    written = write_filled(found, tmp_path / "out.csv", fill=0.25, every=True)
    assert written == b"n,a,b\nx,0.25,0.25\ny,0.25,0.25\n"


def test_default_and_given_tokens_are_missing(table):
    tokens = ["", "NA", "N/A", "NaN", "nan", "null", "None", "NULL", "?", "-", "n.d."]
    text = "a,b\n" + "".join(f"1,{token}\n" for token in tokens)
    found = table(text, na=["n.d."])
    assert np.isnan(found.values[:, 1]).all() and (found.values[:, 0] == 1).all()


@pytest.mark.parametrize(
    ("text", "wanted", "rows"),
    [
        ("1,2\n3,4\n", True, 1),
        ("country,1990\nx,4\n", None, 1),
        ("x,2\ny,4\n", False, 2),
    ],
)
def test_first_line_with_words_is_a_header_by_default(table, text, wanted, rows):
    assert table(text, header=wanted).values.shape[0] == rows


@pytest.mark.parametrize(
    ("name", "text", "given"),
    [
        ("in.csv", "a\tb\n1\t2\n", None),
        ("in.tsv", "a\tb\n1\t2\n", None),
        ("in.csv", "a|b\n1|2\n", "|"),
        ("in.csv", "a\tb,c\n1\t2\n", "tab"),
    ],
)
def test_separators_are_detected_or_given(table, name, text, given):
    np.testing.assert_array_equal(table(text, name, delimiter=given).values, [[1, 2]])


def test_compressed_text_is_read_and_written(table, tmp_path):
    found = table(gzip.compress(b"a\tb\n1\t\n2\t3\n"), "in.tsv.gz")
    written = write_filled(found, tmp_path / "out.tsv.gz")
    assert gzip.decompress(written) == b"a\tb\n1\t9.5\n2\t3\n"


def test_error_names_column_line_and_token(table):
    with pytest.raises(ValueError, match=r"'b' .* line 3: 'oops'.*--label 'b'"):
        table("a,b\n1,2\n3,oops\n5,6\n")
    kept = table("a,b\n1,2\n3,oops\n5,6\n", labels=["b"])
    assert kept.unused_columns == ["b"] and kept.columns == ["a"]


@pytest.mark.parametrize("token", ["inf", "-Infinity", "1_000", "0x10", "1,5"])
def test_unsupported_number_formats_raise(table, token):
    with pytest.raises(ValueError, match="other cells"):
        table(f"a;b\n1;2\n3;{token}\n5;6\n")


def test_line_numbers_count_line_breaks_inside_quotes(table):
    with pytest.raises(ValueError, match="line 5: 'bad'"):
        table('n,a\n"x\ny",1\nz,2\nu,bad\n')


def test_a_numeric_column_can_be_a_label_by_name_or_number(table):
    text = "id,a\n1,5\n2,6\n"
    assert table(text, labels=["id"]).columns == ["a"]
    assert table(text, labels=["1"]).columns == ["a"]
    with pytest.raises(ValueError, match=r"'nope' is not a column.*'id', 'a'"):
        table(text, labels=["nope"])


def test_empty_column_is_imputed_only_if_it_has_a_name(table):
    assert table("a,b\n1,\n2,\n").columns == ["a", "b"]
    assert table("a,\n1,\n2,\n").columns == ["a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "ragged: line 3 has 1 cells, line 1 has 2"),
        ('a,b\n1,"2,5\n3,4\n', "ragged: line 2 has 3 cells"),
        ("", "is empty"),
        ("\n\n", "is empty"),
        ("a,b\n", "no row below"),
        ("a;b\n1,5;2,5\n", "no column holds numbers.*point"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-8"),
    ],
)
def test_invalid_table_raises(table, content, message):
    with pytest.raises(ValueError, match=message):
        table(content)


def test_truncated_gzip_file_raises(table):
    with pytest.raises(ValueError, match="cannot be read as gzip"):
        table(gzip.compress(b"a,b\n1,2\n" * 99)[:-9], "in.csv.gz")


def test_separator_of_several_characters_raises(table):
    with pytest.raises(ValueError, match="--delimiter must be one character"):
        table("a,b\n", delimiter="::")


def test_options_of_another_format_raise(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(2))
    with pytest.raises(ValueError, match="--label does not apply to NPY"):
        read_table(tmp_path / "x.npy", ReadOptions(labels=["a"]))


def test_format_detection_ignores_case(tmp_path):
    assert detect_format(tmp_path / "X.CSV.GZ").name == "CSV"
    with pytest.raises(ValueError, match=r"must end in one of \.csv"):
        detect_format(tmp_path / "x.xlsx")


def test_parquet_keeps_index_labels_and_types(tmp_path):
    frame = pd.DataFrame(
        {
            "who": ["x", "y", "z"],
            "a": np.array([1.5, NAN, 3.0], dtype=np.float32),
            "whole": [1, 2, 3],
            "gappy": pd.array([1, None, 3], dtype="Int64"),
            "yes": [True, False, True],
        },
        index=pd.Index([10, 20, 30], name="key"),
    )
    frame.to_parquet(tmp_path / "in.parquet")
    found = read_table(tmp_path / "in.parquet", ReadOptions())
    assert found.unused_columns == ["who", "yes"]
    found.write(tmp_path / "out.parquet", np.full((3, 3), 9.5))
    back = pd.read_parquet(tmp_path / "out.parquet")
    wanted = frame.assign(
        a=np.array([1.5, 9.5, 3.0], dtype=np.float32), gappy=[1.0, 9.5, 3.0]
    )
    pd.testing.assert_frame_equal(back, wanted)


def test_parquet_without_numeric_columns_raises(tmp_path):
    pd.DataFrame({"a": ["x"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="no numeric column"):
        read_table(tmp_path / "t.parquet", ReadOptions())
    (tmp_path / "t.parquet").write_text("a,b")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_table(tmp_path / "t.parquet", ReadOptions())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_npy_keeps_values_and_float_type(tmp_path, dtype):
    X = np.array([[1, NAN], [1 / 3, 4]], dtype=dtype)
    np.save(tmp_path / "in.npy", X)
    found = read_table(tmp_path / "in.npy", ReadOptions())
    found.write(tmp_path / "out.npy", np.full((2, 2), 9.5, dtype=dtype))
    back = np.load(tmp_path / "out.npy")
    assert back.dtype == dtype
    np.testing.assert_array_equal(back, np.array([[1, 9.5], [1 / 3, 4]], dtype=dtype))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_keeps_the_other_arrays(tmp_path, save):
    arrays = {"X": np.array([[1, NAN]]), "names": np.array(["a", "b"]), "k": np.eye(2)}
    save(tmp_path / "in.npz", **arrays)
    with pytest.raises(ValueError, match=r"2 matrices of floats.*--array.*'names'"):
        read_table(tmp_path / "in.npz", ReadOptions())
    with pytest.raises(ValueError, match="'Y' is not in it"):
        read_table(tmp_path / "in.npz", ReadOptions(array="Y"))
    found = read_table(tmp_path / "in.npz", ReadOptions(array="X"))
    found.write(tmp_path / "out.npz", np.full((1, 2), 9.5))
    with np.load(tmp_path / "out.npz") as back:
        assert back.files == ["X", "names", "k"]
        np.testing.assert_array_equal(back["X"], [[1, 9.5]])
        np.testing.assert_array_equal(back["k"], arrays["k"])
        np.testing.assert_array_equal(back["names"], arrays["names"])


def test_the_only_matrix_of_floats_needs_no_name(tmp_path):
    np.savez(
        tmp_path / "in.npz", v=np.ones(3), X=np.ones((2, 2)), i=np.eye(2, dtype=int)
    )
    assert read_table(tmp_path / "in.npz", ReadOptions()).values.shape == (2, 2)


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.coo_matrix])
def test_sparse_npz_is_written_with_every_entry_stored(tmp_path, make):
    X = make(([0.0, 2.5], ([0, 1], [1, 0])), shape=(2, 2))
    sparse.save_npz(tmp_path / "in.npz", X)
    found = read_table(tmp_path / "in.npz", ReadOptions())
    assert found.values.nnz == 2
    found.write(tmp_path / "out.npz", np.array([[9.5, 0.0], [2.5, 0.0]]))
    back = sparse.load_npz(tmp_path / "out.npz")
    assert back.format == "csr" and back.nnz == 4
    np.testing.assert_array_equal(back.toarray(), [[9.5, 0.0], [2.5, 0.0]])


def test_matrix_market_coordinates_are_written_as_dense_array(tmp_path):
    text = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 0\n2 1 2.5\n"
    (tmp_path / "in.mtx").write_text(text)
    found = read_table(tmp_path / "in.mtx", ReadOptions())
    assert found.values.nnz == 2
    numbers = np.array([[1 / 3, 0.0], [2.5, 0.1]])
    found.write(tmp_path / "out.mtx", numbers)
    assert scipy_io.mminfo(tmp_path / "out.mtx")[3] == "array"
    np.testing.assert_array_equal(scipy_io.mmread(tmp_path / "out.mtx"), numbers)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("coordinate real general\n20000000 20000 3", "20000000 rows .* for 3 entries"),
        ("coordinate real general\n3 3 4000", "fewer than the 4000 entries"),
        ("array real general\n0 0", r"got shape \(0, 0\)"),
        ("array real general\n200000 20000", "fewer than the 4000000000 entries"),
        ("array real symmetric\n20000 20000", "fewer than the 199990000 entries"),
        ("coordinate real general\n3 3 1\n4 1 2.0", "ndex"),
    ],
)
def test_matrix_market_files_that_cannot_hold_their_entries_raise(
    tmp_path, header, message
):
    path = tmp_path / "in.mtx"
    path.write_text(f"%%MatrixMarket matrix {header}\n1 1 1.0\n2 2 2.0\n3 3 3.0\n")
    with pytest.raises(
        ValueError, match=rf"in\.mtx' cannot be read as Matrix Market: .*{message}"
    ):
        read_table(path, ReadOptions())


def test_sparse_npz_with_invalid_indices_raises(tmp_path):
    S = sparse.csr_array(np.eye(8))
    S.indptr[5] = 10**6
    sparse.save_npz(tmp_path / "in.npz", S)
    with pytest.raises(
        ValueError, match=r"in\.npz' cannot be read as NPZ: .*valid csr_array"
    ):
        read_table(tmp_path / "in.npz", ReadOptions())


def test_matrix_market_pattern_raises(tmp_path):
    text = "%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n"
    (tmp_path / "in.mtx").write_text(text)
    with pytest.raises(ValueError, match="without values"):
        read_table(tmp_path / "in.mtx", ReadOptions())


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(3), "2 dimensions"),
        (np.ones((2, 2), dtype=complex), "real numbers"),
        (np.array([["a"]]), "real numbers"),
    ],
)
def test_arrays_other_than_numeric_matrices_raise(tmp_path, array, message):
    np.save(tmp_path / "in.npy", array)
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / "in.npy", ReadOptions())


@pytest.mark.parametrize("name", ["in.npy", "in.npz", "in.mtx"])
def test_invalid_file_with_known_suffix_raises(tmp_path, name):
    (tmp_path / name).write_bytes(b"hello")
    with pytest.raises(ValueError, match=f"{name}' cannot be read"):
        read_table(tmp_path / name, ReadOptions())
