"""Files that completed rows are written to, some at a time.

`open_sink` opens one by the ending of its name; the file appears when all rows are in.
"""

from __future__ import annotations

from ncarl.sinks.opening import open_sink
from ncarl.sinks.protocol import Sink

__all__ = ["Sink", "open_sink"]
