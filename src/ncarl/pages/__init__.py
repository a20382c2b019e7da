"""Pages that need no other file, no script and no network."""

from ncarl.pages.page import Page

__all__ = ["Page"]
