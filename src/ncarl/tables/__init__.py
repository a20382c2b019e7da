"""Tables with gaps: numbers, yes/no and categories in, the same table filled out."""

from __future__ import annotations

from ncarl.tables.imputer import TableImputer

__all__ = ["TableImputer"]
