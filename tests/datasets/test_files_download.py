"""Tests of downloads from a fake publisher."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import logging
import urllib.error
import urllib.request
import zipfile
from email.message import Message

import pytest

from ncarl.datasets import DownloadError, TermsNotAcceptedError, load_movielens
from ncarl.datasets.files import SecureRedirects, open_url
from ncarl.datasets.movielens import RELEASES, SHA256_SUMS

URL = "https://files.grouplens.org/datasets/movielens/ml-100k.zip"
# Imported before a fixture replaces it.
OPEN_URL = open_url


def make_zip(text="1\t1\t5\t10\n2\t2\t3\t20\n"):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr("ml-100k/u.data", text)
    return content.getvalue()


class Response(io.BytesIO):
    def __init__(self, content, url):
        super().__init__(content)
        self.url = url

    def geturl(self):
        return self.url


@dataclasses.dataclass
class Publisher:
    """Responses by URL; a response may be an error or have another final URL."""

    pages: dict
    requested: list = dataclasses.field(default_factory=list)

    def open_url(self, url):
        self.requested.append(url)
        page = self.pages.get(url, urllib.error.HTTPError(url, 404, "no", {}, None))
        if isinstance(page, Exception):
            raise page
        content, final = page if isinstance(page, tuple) else (page, url)
        return Response(content, final)


@pytest.fixture
def publisher(monkeypatch):
    release = RELEASES["100k"]
    tiny = dataclasses.replace(release, shape=(2, 2), counts=(2, 2, 2))
    monkeypatch.setitem(RELEASES, "100k", tiny)
    monkeypatch.delitem(SHA256_SUMS, "ml-100k")
    content = make_zip()
    one = Publisher({URL: content, URL + ".md5": checksum(content)})
    monkeypatch.setattr("ncarl.datasets.files.open_url", one.open_url)
    return one


def checksum(content, form="{}  ml-100k.zip\n"):
    return form.format(hashlib.md5(content).hexdigest()).encode()


def load():
    return load_movielens("100k", accept_terms=True)


@pytest.mark.parametrize("form", ["{}  ml-100k.zip\n", "MD5 (ml-100k.zip) = {}"])
def test_download_is_cached(form, publisher, cache):
    publisher.pages[URL + ".md5"] = checksum(publisher.pages[URL], form)
    assert list(load().ratings) == [5.0, 3.0]
    assert publisher.requested == [URL + ".md5", URL]
    assert (cache / "ml-100k.zip").read_bytes() == publisher.pages[URL]
    assert list(load_movielens("100k", download=False).ratings) == [5.0, 3.0]
    assert len(publisher.requested) == 2
    assert [path.name for path in cache.iterdir()] == ["ml-100k.zip"]


def test_download_must_match_a_known_sha256(publisher, cache, monkeypatch):
    content = publisher.pages[URL]
    known = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(SHA256_SUMS, "ml-100k", known)
    # The MD5 sum of a modified file could be modified too.
    publisher.pages[URL] = make_zip("1\t1\t4\t10\n2\t2\t3\t20\n")
    publisher.pages[URL + ".md5"] = checksum(publisher.pages[URL])
    check_error(publisher, cache, f"SHA256 sum .* expected {known}")
    publisher.pages[URL] = content
    assert list(load().ratings) == [5.0, 3.0]
    assert set(publisher.requested) == {URL}


def test_releases_that_never_change_have_a_sha256():
    fixed = {release.name for release in RELEASES.values() if release.counts}
    assert set(SHA256_SUMS) == fixed
    assert all(len(bytes.fromhex(known)) == 32 for known in SHA256_SUMS.values())


def test_nothing_is_requested_before_terms_are_accepted(publisher, cache):
    with pytest.raises(TermsNotAcceptedError, match="no commercial use"):
        load_movielens("100k")
    assert publisher.requested == []
    assert not cache.exists()


def test_terms_are_logged_before_the_download(publisher, caplog):
    with caplog.at_level(logging.INFO, logger="ncarl"):
        load()
    first, second = (record.getMessage() for record in caplog.records)
    assert "no commercial use" in first
    assert URL in second


def check_error(publisher, cache, match):
    with pytest.raises(DownloadError, match=match) as caught:
        load()
    assert not cache.exists() or list(cache.iterdir()) == []
    for words in ("looked for ml-100k.npz", "source=", "NCARL_DATA", URL):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("page", "answer", "match"),
    [
        (URL, make_zip()[:-1], "MD5 sum .* truncated or modified"),
        (URL, TimeoutError("timed out"), "timed out"),
        (URL + ".md5", urllib.error.URLError("no route to host"), "no route"),
        (URL, (make_zip(), "http://elsewhere.org/file"), "not HTTPS: http://elsewhere"),
        (URL + ".md5", (b"", "http://elsewhere.org/file"), "not HTTPS: http://elsewh"),
    ],
)
def test_failed_download_raises_with_instructions(
    page, answer, match, publisher, cache
):
    publisher.pages[page] = answer
    check_error(publisher, cache, match)


@pytest.mark.parametrize("text", [b"<html>sorry</html>", b"a" * 33, None])
def test_without_a_checksum_nothing_is_downloaded(text, publisher, cache):
    publisher.pages[URL + ".md5"] = text
    if text is None:
        del publisher.pages[URL + ".md5"]
    check_error(publisher, cache, "one MD5 sum" if text else "404")
    assert publisher.requested == [URL + ".md5"]


def test_download_above_the_size_limit_is_aborted(publisher, cache, monkeypatch):
    tight = dataclasses.replace(RELEASES["100k"], archive_limit=100_000)
    monkeypatch.setitem(RELEASES, "100k", tight)

    class Endless(Response):
        def read(self, size=-1):
            assert self.tell() < 1_000_000, "read on and on"
            self.seek(self.tell() + size)
            return b"x" * size

    def open_url(url):
        if url == URL:
            return Endless(b"", url)
        return publisher.open_url(url)

    monkeypatch.setattr("ncarl.datasets.files.open_url", open_url)
    check_error(publisher, cache, "larger than 100000 bytes")


def test_download_at_the_size_limit_is_accepted(publisher, monkeypatch):
    size = len(publisher.pages[URL])
    tight = dataclasses.replace(RELEASES["100k"], archive_limit=size)
    monkeypatch.setitem(RELEASES, "100k", tight)
    assert len(load()) == 2


def test_counts_are_checked_before_a_file_is_kept(publisher, cache):
    publisher.pages[URL] = make_zip("1\t1\t5\t10\n")
    publisher.pages[URL + ".md5"] = checksum(publisher.pages[URL])
    check_error(publisher, cache, "unexpected file.*2 users, 2 films and 2 ratings")


def test_redirects_must_be_https():
    request = urllib.request.Request(URL)

    def follow(url):
        return SecureRedirects().redirect_request(
            request, io.BytesIO(), 302, "Found", Message(), url
        )

    assert follow("https://mirror.org/a.zip").full_url == "https://mirror.org/a.zip"
    for url in ("http://mirror.org/a.zip", "ftp://mirror.org/a", "file:///etc/passwd"):
        with pytest.raises(DownloadError, match="not HTTPS"):
            follow(url)


def test_opener_uses_secure_redirects_and_https(monkeypatch):
    seen = []

    class Opener:
        def open(self, request, timeout):
            seen.append((request.full_url, timeout > 0))

    def build(*handlers):
        assert handlers == (SecureRedirects,)
        return Opener()

    monkeypatch.setattr(urllib.request, "build_opener", build)
    OPEN_URL(URL)
    assert seen == [(URL, True)]
    with pytest.raises(DownloadError, match="not HTTPS"):
        OPEN_URL("http://files.grouplens.org/a.zip")
    assert len(seen) == 1
