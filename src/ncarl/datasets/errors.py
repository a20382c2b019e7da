"""What can go wrong before a data set is there.

A file that is there and cannot be used is a `ncarl.exceptions.BrokenFileError`.
"""

from __future__ import annotations


class DataNotFoundError(FileNotFoundError):
    """A data set is in none of the places where it was looked for."""


class TermsNotAcceptedError(DataNotFoundError):
    """A data set could be downloaded, but its terms were not accepted."""


class DownloadError(OSError):
    """A download failed, or gave something else than was asked for."""
