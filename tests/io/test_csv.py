"""Tests of CSV, TSV and Parquet files as row sources."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from ncarl.exceptions import BrokenFileError
from ncarl.io import open_rows
from ncarl.io.tables import ReadOptions, read_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def write(path, text):
    path.write_text(text, newline="")
    return path


def read_stream(path):
    return list(open_rows(path))


def read_whole(path):
    return read_table(path, ReadOptions())


@pytest.fixture
def check_values(dense):
    """Function that checks the values of a source."""
    return lambda source, wanted: np.testing.assert_array_equal(
        dense(source), np.array(wanted, float)
    )


def test_numbers_booleans_and_nulls_of_parquet_are_read(tmp_path, check_values):
    table = pa.table(
        {
            "half": pa.array([1.5, None, 2.5], pa.float32()),
            "whole": pa.array([1, 2, None], pa.int64()),
            "yes": pa.array([True, None, False]),
            "none": pa.nulls(3),
            "exact": pa.array([1, None, 2], pa.int32()).cast(pa.decimal128(12, 2)),
        }
    )
    pq.write_table(table, tmp_path / "X.parquet")
    source = open_rows(tmp_path / "X.parquet", rows_per_chunk=2)
    gap = np.nan
    wanted = [[1.5, 1, 1, gap, 1], [gap, 2, gap, gap, gap], [2.5, gap, 0, gap, 2]]
    check_values(source, wanted)
    assert source.names == ("half", "whole", "yes", "none", "exact")
    assert (source.n_rows, source.dtype) == (3, np.float64)


def test_columns_are_selected_in_the_given_order(tmp_path, check_values):
    table = pa.table({"a": [1.0], "t": ["x"], "b": [2.0]})
    pq.write_table(table, tmp_path / "X.parquet")
    write(tmp_path / "X.csv", "a,t,b\n1,x,2\n")
    for path in (tmp_path / "X.parquet", tmp_path / "X.csv"):
        source = open_rows(path, columns=["b", "a"])
        assert source.names == ("b", "a")
        check_values(source, [[2.0, 1.0]])
        with pytest.raises(ValueError, match=r"'c', which .* does not have.*'a', 't'"):
            open_rows(path, columns=["c"])
        with pytest.raises(TypeError, match=r"\['a'\]"):
            open_rows(path, columns="a")
        with pytest.raises(ValueError, match="at least one column"):
            open_rows(path, columns=[])
        with pytest.raises(ValueError, match="twice: 'a'"):
            open_rows(path, columns=["a", "a"])


def test_text_column_error_suggests_selecting_columns(tmp_path):
    table = pa.table({"a": [1.0], "t": ["x"], "d": [b"y"]})
    pq.write_table(table, tmp_path / "X.parquet")
    with pytest.raises(ValueError, match=r"'t' \(string\), 'd' \(binary\).*columns="):
        open_rows(tmp_path / "X.parquet")


def test_index_of_a_frame_is_not_a_column(tmp_path, check_values):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index([7, 8], name="id"))
    frame.to_parquet(tmp_path / "X.parquet")
    assert open_rows(tmp_path / "X.parquet").names == ("a",)
    check_values(open_rows(tmp_path / "X.parquet", columns=["id"]), [[7], [8]])


def test_row_groups_are_merged_and_split(tmp_path, check, rng):
    X = rng.standard_normal((40, 2))
    table = pa.table({"a": X[:, 0], "b": X[:, 1]})
    for size in (3, 7, 40):
        pq.write_table(table, tmp_path / "X.parquet", row_group_size=size)
        for rows in (2, 7, 9, 100):
            check(open_rows(tmp_path / "X.parquet", rows_per_chunk=rows), X, rows)
    pq.write_table(table, tmp_path / "X.parquet", row_group_size=3)
    found = open_rows(tmp_path / "X.parquet", rows_per_chunk=9)
    assert [chunk.shape[0] for chunk in found] == [9, 9, 9, 9, 4]
    found = open_rows(tmp_path / "X.parquet", rows_per_chunk=3)
    assert len(found.chunk_loaders()) == 14
    # Chunks that split row groups have no loaders.
    assert open_rows(tmp_path / "X.parquet", rows_per_chunk=2).chunk_loaders() is None


def test_files_of_a_folder_must_have_the_same_columns(tmp_path, check_values):
    pq.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [4.0], "a": [3.0]}), tmp_path / "2.parquet")
    (tmp_path / "_SUCCESS").write_text("")
    check_values(open_rows(tmp_path), [[1, 2], [3, 4]])
    pq.write_table(pa.table({"a": [3.0]}), tmp_path / "3.parquet")
    with pytest.raises(ValueError, match=r"3\.parquet.*'b'"):
        open_rows(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="must hold Parquet files"):
        open_rows(tmp_path / "empty")


@pytest.mark.parametrize("word", ["", "NA", "null", "?"])
def test_missing_value_tokens(word, tmp_path, check_values):
    path = write(tmp_path / "X.csv", f'a,b\n{word},1\n 2 , {word}\n"{word}",3\n')
    check_values(open_rows(path), [[np.nan, 1], [2, np.nan], [np.nan, 3]])


@pytest.mark.parametrize(
    ("text", "names", "wanted"),
    [
        ("a,b\n1,2\n", ("a", "b"), [[1, 2]]),
        ("1,2\n3,4\n", None, [[1, 2], [3, 4]]),
        ('"1","2"\n3,4\n', ("1", "2"), [[3, 4]]),
        ('"1","2"\n"3","4"\n', None, [[1, 2], [3, 4]]),
        ("a;b\n1;2\n", ("a", "b"), [[1, 2]]),
        ("\ufeffa,b\r\n1,2\r\n", ("a", "b"), [[1, 2]]),
        ("\n\na,b\n\n1,2\n\n", ("a", "b"), [[1, 2]]),
        ("a\n1\n\n3\n", ("a",), [[1], [np.nan], [3]]),
        ("\n1\n3", None, [[np.nan], [1], [3]]),
        ('"a\nb",c\n1,2\n', ("a\nb", "c"), [[1, 2]]),
        ("a,,c\n1,2,3", ("a", "2", "c"), [[1, 2, 3]]),
        # A frame with default index and columns as written by pandas.
        (",0,1\n0,5,\n1,6,7\n", ("column 1", "0", "1"), [[0, 5, np.nan], [1, 6, 7]]),
        ("NA,1\n2,3\n", None, [[np.nan, 1], [2, 3]]),
        ("a,b\n1e3,-2.5E-1\n", ("a", "b"), [[1000, -0.25]]),
    ],
)
def test_text_tables_are_read(text, names, wanted, tmp_path, check_values):
    source = open_rows(write(tmp_path / "X.csv", text))
    assert source.names == names
    assert source.n_rows is None
    check_values(source, wanted)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
def test_first_line_of_years_is_a_header(ending, tmp_path, rng, check_values):
    X = rng.normal(10.0, 1.0, (30, 5))
    lines = ["2001,2002,2003,2004,2005", *(",".join(map(repr, x)) for x in X.tolist())]
    source = open_rows(write(tmp_path / "X.csv", ending.join(lines)))
    assert source.names == ("2001", "2002", "2003", "2004", "2005")
    check_values(source, X)
    assert open_rows(tmp_path / "X.csv", columns=["2004"]).n_columns == 1


YEARS, ROWS = "2001,2002,2003\n", "11,12,10\n10,9.5,\n9,10,10.5\n8.5,11,9\n"
WITH_HEADER = [
    "a,b\n1,2\n",
    "a,2\n1,2\n",
    "inf,1\n1,2\n",
    "1_0,2\n3,4\n",
    "a\n1\n\n3\n",
    '"a\nb","c"\n1,2\n',
    '"1","2"\n3,4\n',
    '"1"\n\n"3"\n',
    ' "1", "2"\n3,4\n',
    YEARS + ROWS,
    "\n\n" + YEARS + "\n" + ROWS,
    (YEARS + ROWS).replace(",", ";"),
    '"2001","2002","2003"\n' + ROWS.replace("11", '"11"'),
    ",2008,2009,2010\nA,1.2,,3\nB,2,3,1\n",
    ",0,1\n0,0.5,\n1,-3,4\n",
    ",1,2,3,4,5\n7,1,1,1,1,1\n",
    ",2008,2009,2010\n1,1.2,2,3\n2,2,3,\n",
    "NA,2008,2009,2010\n7,1.2,2,3\n5,2,3,\n",
    ",2010,2009,2008\nA,1.2,,3\nB,2,3,1\n",
    ",2001,2005,2011\nA,1.2,,3\nB,2,3,1\n",
    "2003,2002,2001\n" + ROWS,
    "0," + YEARS + "10," + ROWS.replace("\n", "\n9,", 3),
    "2000," + YEARS + "word," + ROWS.replace("\n", "\nword,", 3),
    # Blank lines do not count among the fifty inspected rows.
    YEARS + ROWS * 13 + YEARS,
    YEARS + "\n" * 60 + ROWS,
]
WITHOUT_HEADER = [
    "1,2\n3,4\n",
    "1,2,3\n",
    "NA,1\n2,3\n",
    "\n1\n3\n",
    "1\n\n3\n",
    '\n"1"\n3\n',
    '"1","2"\n"3","4"\n',
    '"1",2\n3,4\n',
    ",2,4\n5,1,5\n3,5,1\n1,3,3\n",
    ",4\n5,1\n3,5\n",
    "1,2,3\n2,4,1\n",
    "1,2,3\n2,4,1\n3,1,2\n1,1,5\n",
    # Increasing columns: the first row is one step outside of the range.
    "1,2,3\n2,4,5\n3,6,8\n4,7,10\n5,9,12\n",
    "1,2,3\n10,20,30\n100,200,300\n1000,2000,3000\n",
    "1,2,4\n90,95,91\n92,90,94\n91,93,92\n",
    "1.5,2.5,3.5\n90,95,91\n92,90,94\n91,93,92\n",
    # Cumulative counts with an unknown first value.
    ",3,5,8,12,20\n2,4,5,9,13,19\n1,2,6,7,11,25\n",
    YEARS,
    YEARS + ROWS + "2000,2001,2002\n",
    YEARS + ROWS * 12 + "9,9,9\n" + YEARS,
    YEARS + "\n" * 60 + ROWS + YEARS,
]


@pytest.mark.parametrize(
    ("text", "header"),
    [(text, True) for text in WITH_HEADER] + [(text, False) for text in WITHOUT_HEADER],
)
def test_header_detection_is_that_of_whole_tables(text, header, tmp_path):
    path = write(tmp_path / "X.csv", text)
    assert read_table(path, ReadOptions()).dialect.header == header
    assert (open_rows(path).names is not None) == header


@pytest.mark.parametrize("text", [",1,2,3,4,5\n", "a,b\n"])
def test_header_without_rows_raises_in_both_readers(text, tmp_path):
    path = write(tmp_path / "X.csv", text)
    for read in (
        lambda: read_table(path, ReadOptions()),
        lambda: list(open_rows(path)),
    ):
        with pytest.raises(ValueError, match="a header and no row"):
            read()


def test_tabs_and_gzip_are_read(tmp_path, check_values):
    (tmp_path / "X.tsv.gz").write_bytes(gzip.compress(b"a;b\tc\n1\t2\n"))
    source = open_rows(tmp_path / "X.tsv.gz")
    assert source.names == ("a;b", "c")
    check_values(source, [[1, 2]])


def test_type_of_a_column_is_the_same_in_all_chunks(tmp_path):
    lines = ["a,b"] + ["1,NA"] * 200_000 + ["2.5,7"]
    path = write(tmp_path / "X.csv", "\n".join(lines))
    source = open_rows(path, rows_per_chunk=150_000)
    found = list(source)
    assert [chunk.shape[0] for chunk in found] == [150_000, 50_001]
    assert found[0].n_observed == 150_000
    assert found[1].values[-2:].tolist() == [2.5, 7.0]


def test_error_names_column_and_line(tmp_path):
    lines = ["a,b"] + ["1,2"] * 100 + ["3,oops", "4,5"]
    path = write(tmp_path / "X.csv", "\n".join(lines))
    with pytest.raises(ValueError, match=r"'oops' in column 'b', line 102.*columns="):
        list(open_rows(path))
    assert sum(chunk.shape[0] for chunk in open_rows(path, columns=["a"])) == 102


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n3\n", {}, "line 3 has 1 cells, the first line has 2"),
        ("a,b\n1,2\n3,inf\n", {}, r"finite.* row 1, column 1"),
        ("\n\n", {}, "is empty"),
        ("1,2\n", {"columns": ["1"]}, "first line with names"),
        ("a,a\n1,2\n", {}, "twice: 'a'"),
    ],
)
def test_invalid_tables_raise(text, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        list(open_rows(write(tmp_path / "X.csv", text), **options))


def test_truncated_gzip_table_raises(tmp_path):
    lines = [f"{k},{k * k}" for k in range(20_000)]
    packed = gzip.compress("\n".join(["a,b", *lines]).encode())
    (tmp_path / "X.csv.gz").write_bytes(packed[: len(packed) // 2])
    with pytest.raises(BrokenFileError, match=r"X\.csv\.gz"):
        list(open_rows(tmp_path / "X.csv.gz"))


def test_gzip_files_are_not_unpacked_beyond_the_memory(tmp_path, monkeypatch):
    path = tmp_path / "X.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 600_000))  # 2.4 MB
    assert len(read_table(path, ReadOptions()).values) == 600_000
    monkeypatch.setattr("ncarl.io.base.host_memory", lambda: 8 << 20)
    with pytest.raises(MemoryError, match=r"X\.csv\.gz' takes more than.*--stream"):
        read_table(path, ReadOptions())
    assert sum(chunk.shape[0] for chunk in open_rows(path)) == 600_000


@pytest.mark.parametrize("rows", [0, 1, 90_000])
def test_endless_lines_are_refused_before_they_fill_the_memory(
    tmp_path, monkeypatch, rows
):
    monkeypatch.setattr("ncarl.io.csv.MAX_LINE_CHARS", 1 << 16)
    path = tmp_path / "X.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n" * rows + b"3" * 9_000_000))
    with pytest.raises(ValueError, match=r"X\.csv\.gz' has a line of 65536 characters"):
        list(open_rows(path))


def test_long_cells_are_shortened_in_errors(tmp_path):
    path = write(tmp_path / "X.csv", f"a,b\n1,2\n3,{'x' * 1_000_000}\n5,6\n7,8\n")
    for read in (read_stream, read_whole):
        with pytest.raises(ValueError, match="xxx") as caught:
            read(path)
        assert len(str(caught.value)) < 1000


def test_lines_longer_than_a_read_block_are_read(tmp_path, rng, monkeypatch):
    monkeypatch.setattr("ncarl.io.csv.BLOCK_BYTES", 1 << 12)
    X = rng.standard_normal((3, 1000))
    text = "\n".join(",".join(map(repr, row)) for row in X.tolist())
    (first, *_) = open_rows(write(tmp_path / "X.csv", text), rows_per_chunk=1)
    assert first.values.tobytes() == X[0].tobytes()
