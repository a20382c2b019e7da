"""Rows from anywhere: files larger than memory, arrays, blocks made on the way.

`open_rows` opens them all as a `RowSource`, which gives its rows in chunks, again and
again; `prefetched` reads the next chunks while one is worked on.
"""

from __future__ import annotations

from ncarl.sources.ahead import prefetched
from ncarl.sources.opening import open_rows
from ncarl.sources.protocol import RowSource

__all__ = ["RowSource", "open_rows", "prefetched"]
