"""Tests of ``ncarl recommend``: lists, explanations, files and reports."""

from __future__ import annotations

import csv as csv_files
import gzip
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ncarl import NCARL, BayesianNCARL
from ncarl.cli.app import app
from ncarl.cli.recommend import read_ratings, read_titles
from ncarl.ratings import Recommender
from ncarl.ratings.data import Vocabulary

HEADS = "userId,movieId,rating,timestamp"


def make_rows(rng):
    """Ratings of users 1 to 30 with two tastes for items 101 to 110."""
    taste = rng.choice([-1, 1], 30)
    for u in range(30):
        for i in range(10):
            # Users 3 and 6 have rated half of the items only.
            if i % 2 if u in (3, 6) else rng.random() < 0.6:
                liked = taste[u] * (1 if i < 5 else -1)
                stars = 3 + liked + rng.integers(-1, 2)
                yield u + 1, i + 101, int(np.clip(stars, 1, 5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder with ratings, unusual titles, ratings of a new user, and a model."""
    path = tmp_path_factory.mktemp("recommend")
    rows = list(make_rows(np.random.default_rng(0)))
    lines = [f"{u},{i},{r},0" for u, i, r in rows]
    (path / "ratings.csv").write_text("\n".join([HEADS, *lines]) + "\n")
    titles = [f'{i},"[bold]Film, {i}[/bold] <b>"' for i in range(101, 111)]
    (path / "titles.csv").write_text("\n".join(["movieId,title", *titles]) + "\n")
    (path / "mine.csv").write_text("movieId,rating\n101,5\n106,1\n999,3\n")
    words = ["recommend", path / "ratings.csv", "--user", 4, "-n", 3]
    words += ["--save-model", path / "model.ncarl"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    (path / "said").write_text(done.stdout)
    return path


def items_in(said):
    """Items of the printed lists."""
    return [int(item) for item in re.findall(r"^\d+\. (\d+) ", said, re.MULTILINE)]


def test_recommendations_from_a_ratings_file(folder):
    said = (folder / "said").read_text()
    for part in ("30 users of 10 items", "For 4, who rated", "80% interval", "held out",
                 "model.ncarl"):  # fmt: skip
        assert part in said
    kept = Recommender.load(folder / "model.ncarl")
    assert items_in(said) == [row.item for row in kept.recommend(4, 3)]
    mine = {(u, i): r for u, i, r in make_rows(np.random.default_rng(0))}
    found = {(u, i): r for u in kept.users for i, r in kept.ratings_of(u)}
    assert found == mine
    # assert_equal treats NaN defaults as equal.
    np.testing.assert_equal(kept.model_.get_params(), BayesianNCARL().get_params())


def test_recommendations_from_a_saved_model(ncarl, folder, tmp_path):
    out = tmp_path / "recs.csv"
    said = ncarl("recommend", "--model", folder / "model.ncarl", "--user", 4, "--user",
                 7, "--titles", folder / "titles.csv", "--explain", "--out", out,
                 "--level", 0.5, "-n", 2).stdout  # fmt: skip
    model = Recommender.load(folder / "model.ncarl")
    for user in (4, 7):
        assert f"For {user}, who rated {len(model.ratings_of(user))}" in said
        for row in model.recommend(user, 2):
            assert f"[bold]Film, {row.item}[/bold] <b>: {row.predicted:.2f}" in said
    for part in (" to [bold]Film, 1", "because you gave ", "50% interval"):
        assert part in said
    with out.open(newline="") as stream:
        table = list(csv_files.DictReader(stream))
    heads = "userId rank movieId title predicted low high n_ratings"
    assert list(table[0]) == heads.split()
    assert [line["rank"] for line in table] == ["1", "2", "1", "2"]
    wanted = model.recommend(7, 2, level=0.5)
    assert [int(line["movieId"]) for line in table[2:]] == [r.item for r in wanted]
    for line, row in zip(table[2:], wanted, strict=True):
        for name in ("predicted", "low", "high"):
            assert float(line[name]) == pytest.approx(getattr(row, name), rel=1e-5)


def test_new_user_gets_a_list_but_is_not_saved(ncarl, folder, tmp_path):
    saved = tmp_path / "saved.ncarl"
    result = ncarl("recommend", "--model", folder / "model.ncarl", "--new-user",
                   folder / "mine.csv", "-n", 8, "--explain", "--save-model",
                   saved)  # fmt: skip
    assert "For you, who rated 2" in result.stdout
    assert "because you gave 5 to 101" in result.stdout
    assert "1 of 3 ratings of mine.csv are left out: item '999'" in result.stderr
    model = Recommender.load(saved)
    assert model.users == list(range(1, 31))
    wanted = model.recommend(model.add_user({101: 5, 106: 1}), 8)
    assert items_in(result.stdout) == [row.item for row in wanted]


def test_all_users_option_writes_lists_of_all_users(
    ncarl, folder, tmp_path, monkeypatch
):
    monkeypatch.setattr("ncarl.cli.console.is_interactive", lambda quiet: True)
    out, page = tmp_path / "recs.parquet", tmp_path / "page.html"
    result = ncarl("recommend", "--model", folder / "model.ncarl", "--all-users", "-n",
                   2, "--out", out, "--report", page)  # fmt: skip
    assert "30 lists" in result.stdout and "For 4" not in result.stdout
    assert "lists" in result.stderr and "100/100" in result.stderr
    text = page.read_text(encoding="utf-8")
    assert "For 4" in text and "10 more lists are left out" in text
    table = pd.read_parquet(out)
    model = Recommender.load(folder / "model.ncarl")
    assert sorted(set(table["userId"])) == model.users
    mine = table[table["userId"] == 9]
    wanted = model.recommend(9, 2, level=0.8)
    assert list(mine["movieId"]) == [row.item for row in wanted]
    np.testing.assert_allclose(mine["low"], [row.low for row in wanted])


def test_similar_items_are_found_by_id_or_title(ncarl, folder, tmp_path):
    model = Recommender.load(folder / "model.ncarl")
    wanted = [row.item for row in model.similar_items(101, 3)]
    said = ncarl(
        "recommend", "--model", folder / "model.ncarl", "--similar-to", 101, "-n", 3
    )
    assert items_in(said.stdout) == wanted
    out = tmp_path / "like.tsv.gz"
    ncarl("recommend", "--model", folder / "model.ncarl", "--titles",
          folder / "titles.csv", "--similar-to", "[bold]Film, 101[/bold] <b>", "-n", 3,
          "--out", out, "--quiet")  # fmt: skip
    lines = gzip.decompress(out.read_bytes()).decode().splitlines()
    assert lines[0] == "movieId\ttitle\tsimilarity\tn_ratings"
    assert [int(line.split("\t")[0]) for line in lines[1:]] == wanted


def test_rank_by_option_determines_the_order(ncarl, folder, tmp_path):
    out = tmp_path / "recs.csv"
    ncarl("recommend", "--model", folder / "model.ncarl", "-u", 4, "--include-seen",
          "--uncertainty-penalty", 2, "--popularity", 3, "--min-ratings", 15,
          "--out", out, "-q")  # fmt: skip
    model = Recommender.load(folder / "model.ncarl")
    wanted = model.recommend(
        4, 10, False, uncertainty_penalty=2, popularity=3, min_ratings=15
    )
    with out.open(newline="") as stream:
        found = [int(line["movieId"]) for line in csv_files.DictReader(stream)]
    assert found == [row.item for row in wanted]
    assert found != [row.item for row in model.recommend(4)]


def test_report_has_lists_explanations_and_a_figure(ncarl, folder, tmp_path):
    page = tmp_path / "page.html"
    said = ncarl("recommend", "--model", folder / "model.ncarl", "--user", 4,
                 "--explain", "--titles", folder / "titles.csv", "--similar-to", 102,
                 "-n", 3, "--report", page).stdout  # fmt: skip
    assert "page.html" in said
    text = page.read_text(encoding="utf-8")
    assert text.lower().startswith("<!doctype html")
    assert "For 4, who rated" in text and "because you gave" in text
    assert "data:image/png;base64" in text and "Like [bold]Film, 102" in text
    assert "<b>" not in text.split("</style>")[1]
    quiet = ncarl("recommend", "--model", folder / "model.ncarl", "--user", 4, "-q",
                  "--report", page)  # fmt: skip
    assert quiet.output == ""


def test_model_saved_in_python_can_be_used(ncarl, tmp_path):
    rows = [(f"u{u}", f"m{i}", r) for u, i, r in make_rows(np.random.default_rng(0))]
    frame = pd.DataFrame(rows, columns=["user", "item", "rating"])
    model = Recommender(BayesianNCARL(max_iter=3, tol=0)).fit(frame)
    saved, again = tmp_path / "m.ncarl", tmp_path / "again.ncarl"
    model.save(saved)
    said = ncarl("recommend", "--model", saved, "--user", "u4", "--similar-to", "m101",
                 "-n", 2, "--save-model", again).stdout  # fmt: skip
    for item in model.recommend("u4", 2)["item"]:
        assert f" {item} " in said
    for item in model.similar_items("m101", 2)["item"]:
        assert f" {item} " in said
    assert isinstance(Recommender.load(again).recommend("u4"), pd.DataFrame)


@pytest.mark.parametrize("users", [("--user", 4), ("--all-users",)])
def test_a_model_without_noise_gives_lists_without_intervals(
    ncarl, fails, tmp_path, users
):
    ratings = list(make_rows(np.random.default_rng(0)))
    model = Recommender(NCARL(max_iter=2, tol=0)).fit(ratings)
    saved, out, page = (tmp_path / name for name in ("m.ncarl", "o.csv", "o.html"))
    model.save(saved)
    said = ncarl("recommend", "--model", saved, *users, "-n", 2, "--out", out,
                 "--report", page).stdout  # fmt: skip
    assert "ncarl, kernel of items" in said
    assert "interval" not in said + page.read_text(encoding="utf-8")
    lines = out.read_text().splitlines()
    assert lines[0] == "user,rank,item,predicted,n_ratings"
    assert f"4,1,{model.recommend(4, 1)[0].item}," in "\n".join(lines)
    words = fails("recommend", "--model", saved, *users, "--level", 0.8, "--out",
                  tmp_path / "other.csv")  # fmt: skip
    assert "level needs a model of the noise" in words


def test_duplicate_ratings_of_a_new_user_follow_the_option(
    ncarl, fails, folder, tmp_path
):
    twice = tmp_path / "twice.csv"
    twice.write_text("101,5\n106,1\n101,2\n")
    words = ("recommend", "--model", folder / "model.ncarl", "--new-user", twice)
    assert "item 101 is rated more than once" in fails(*words)
    said = ncarl(*words, "--duplicates", "last", "--explain", "-n", 1).stdout
    assert "because you gave 2 to 101" in said


def test_delimiter_applies_to_the_ratings_file(ncarl, tmp_path):
    rows = make_rows(np.random.default_rng(0))
    (tmp_path / "r.csv").write_text("\n".join(f"{u}|{i}|{r}" for u, i, r in rows))
    titles = [f"{i},A | B {i}" for i in range(101, 111)]
    (tmp_path / "t.csv").write_text("\n".join(titles))
    (tmp_path / "own.csv").write_text("101;5\n106;1\n")
    said = ncarl("recommend", tmp_path / "r.csv", "--delimiter", "|", "--titles",
                 tmp_path / "t.csv", "--new-user",
                 tmp_path / "own.csv").stdout  # fmt: skip
    assert "For you, who rated 2" in said and "A | B 10" in said


def test_columns_of_a_new_user_file_are_found_by_name(ncarl, folder, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("when,stars,movie\n1,5,101\n2,1,106\n")
    said = ncarl("recommend", "--model", folder / "model.ncarl", "--new-user", own,
                 "--explain", "-n", 1).stdout  # fmt: skip
    assert "For you, who rated 2" in said and "because you gave 5 to 101" in said


# --- files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, text, ids",
    [
        ("a.csv", "user,item,rating\n1,x,5\n2,y,3\n", ([1, 2], ["x", "y"])),
        ("a.csv", "item;stars;User ID\nx;5;1\ny;3;02\n", (["1", "02"], ["x", "y"])),
        ("a.tsv", "1\t007\t5\t881250949\n2\t8\t3\t0\n", ([1, 2], ["007", "8"])),
        ("a.csv", '\ufeffuser,item,rating\n"a,b",1,5\n\nc,-2,3\n',
         (["a,b", "c"], [1, -2])),
        ("a.csv.gz", "user,item,rating\n1,x,5\n2,y,3\n", ([1, 2], ["x", "y"])),
    ],
)  # fmt: skip
def test_columns_of_ratings_files_are_detected(tmp_path, name, text, ids):
    path = tmp_path / name
    data = text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = read_ratings(path, None)
    assert (found.users, found.items) == ids
    assert found.values == [5.0, 3.0]


def test_columns_can_be_given_by_name_or_number(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,c,d\n9,5,x,u\n8,3,y,v\n")
    for columns in (("d", "c", "b"), ("4", "3", "2")):
        found = read_ratings(path, columns)
        assert (found.users, found.items) == (["u", "v"], ["x", "y"])
        assert found.values == [5.0, 3.0]
    frame = pd.DataFrame({"user": ["u", "v"], "item": [3, 4], "rating": [5.0, 3.0]})
    frame.to_parquet(tmp_path / "a.parquet")
    found = read_ratings(tmp_path / "a.parquet", None)
    assert (found.users, found.items) == (["u", "v"], [3, 4])
    assert found.values == [5.0, 3.0]
    with pytest.raises(ValueError, match="--delimiter does not apply"):
        read_ratings(tmp_path / "a.parquet", None, ";")
    (tmp_path / "a.parquet").write_bytes(b"no")
    with pytest.raises(ValueError, match="cannot be read as Parquet"):
        read_ratings(tmp_path / "a.parquet", None)


@pytest.mark.parametrize("head", ["", "item,title\n", "movie,what it is\n"])
def test_titles_file_without_header(tmp_path, head):
    path = tmp_path / "t.csv"
    path.write_text(f"{head}m1,First\nm2,Second\n")
    known, _ = Vocabulary.from_column("item", ["m1", "m2"])
    assert read_titles(path, "item", known) == {"m1": "First", "m2": "Second"}


def test_named_index_is_a_column(tmp_path):
    frame = pd.DataFrame({"user": [1, 2], "item": [3, 4], "rating": [5.0, 3.0]})
    for keys in ("user", ["item", "user"]):
        frame.set_index(keys).to_parquet(tmp_path / "a.parquet")
        found = read_ratings(tmp_path / "a.parquet", None)
        assert (found.users, found.items) == ([1, 2], [3, 4])
    frame["user"] = pd.array([1, None], dtype="Int64")
    frame.to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"'user' of .* is empty at line 2"):
        read_ratings(tmp_path / "a.parquet", None)


def test_columns_of_any_name_are_supported(ncarl, tmp_path):
    path, out = tmp_path / "a.csv", tmp_path / "o.csv"
    rows = [f"{u},{i},{r}" for u, i, r in make_rows(np.random.default_rng(0))]
    path.write_text("\n".join(["rank,predicted,rating", *rows]))
    ncarl("recommend", path, "--columns", "1,2,3", "-u", 4, "-n", 1, "-o", out)
    heads = out.read_text().splitlines()[0]
    assert heads == "user,rank,item,predicted,low,high,n_ratings"


@pytest.mark.parametrize(
    "text, options, words",
    [
        ("x,item,rating\na,b,5\n", (), "no column that is named like users"),
        ("user,item,rating\na,b,5\n", ("--columns", "user,item"), "must name three"),
        ("user,item,rating\na,b,5\n", ("--columns", "user,item,stars"),
         "'stars' is not a column"),
        ("user,item,rating\na,b,5\n", ("--columns", "user,user,rating"),
         "must name three columns"),
        ("user,item,rating\na,b,\n", (), "'' at line 2 of"),
        ("user,item,rating\na,b,good\n", (), "'good' at line 2 of"),
        ("user,item,rating\n,b,5\n", (), "'user' of"),
        ("user,item,rating\na,b,5\na,b,4\n", (), "more than once"),
        ("user,item,rating\n", (), "no row below it"),
        ("1,2\n3,4\n", (), "got 2 columns"),
        ("", (), "is empty"),
    ],
)  # fmt: skip
def test_files_without_ratings_give_an_error(fails, tmp_path, text, options, words):
    path = tmp_path / "in.csv"
    path.write_text(text)
    assert words in fails("recommend", path, "--user", "a", *options)


def test_invalid_options_give_a_one_line_error(fails, folder, tmp_path):
    source, model = folder / "ratings.csv", ("--model", folder / "model.ncarl")
    there = tmp_path / "there.csv"
    there.write_text("mine")
    one = folder / "one.csv"
    one.write_text("only\n101\n")
    (folder / "grade.csv").write_text("user,item,grade\n1,101,5\n")
    (folder / "bare.csv").write_text("1,101,5\n")
    out = ("-o", tmp_path / "o.csv")
    similar, everybody = (*model, "--similar-to", 101), (*model, "--all-users")
    for options, words in (
        ((), "give RATINGS"),
        ((source, *model), "not both"),
        ((source,), "choose users"),
        ((*model, "--columns", "a,b,c"), "--columns is for RATINGS"),
        ((*model, "-u", 4, "--delimiter", "tab"), "--delimiter is for RATINGS"),
        ((*model, "-u", 4, "--duplicates", "last"), "--duplicates is for RATINGS"),
        ((*model, "-u", 4, "--engine", "threads"), "--engine is for RATINGS"),
        ((*similar, "--uncertainty-penalty", 1), "--uncertainty-penalty is for lists"),
        ((*similar, "--popularity", 1), "--popularity is for lists"),
        ((*similar, "--include-seen"), "--include-seen is for lists"),
        ((*similar, "--level", 0.8), "--level is for lists"),
        ((*similar, "--explain"), "--explain explains"),
        ((*similar, "-u", 4, *out), "one kind of list"),
        (everybody, "name the file with --out"),
        ((*everybody, "-o", "o.txt"), "CSV, TSV or Parquet, got .txt (o.txt)"),
        ((*everybody, "-o", "o.npy"), "CSV, TSV or Parquet, got NPY (o.npy)"),
        ((*everybody, "-u", 4, *out), "--user and --all-users do not go together"),
        ((*everybody, "--new-user", there, *out), "--new-user and --all-users do not"),
        ((*everybody, "--similar-to", 101, *out), "--similar-to and --all-users do"),
        ((*model, "-u", 4, "--titles", there, "-o", there, "--overwrite"),
         "is the file of --titles; name another file"),
        ((*model, "-u", 4, "--titles", one), "a column of items and one of titles"),
        ((*model, "--new-user", one), "a column of items and one of ratings"),
        ((*model, "--new-user", folder / "grade.csv"), "named item and rating"),
        ((*model, "--new-user", folder / "bare.csv"), "it has no names"),
        ((*model, "--user", "x"), "user 'x' is not known; there are 30 users"),
        ((*model, "--similar-to", "x"), "item 'x' is not known"),
        ((*model, "--user", 4, "--out", there), "exists; name another"),
        ((*model, "--user", 4, "--report", tmp_path / "o.txt"), "--report must end in"),
        (("--model", source, "--user", 4), "not a file written by ncarl"),
        ((folder / "x.npy", "--user", 4), "CSV, TSV or Parquet, got NPY"),
        ((folder / "x.csv", "--user", 4), "No such file"),
    ):  # fmt: skip
        assert words in fails("recommend", *options)
    assert there.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
