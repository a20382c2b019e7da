"""Workers of Dask: on this machine, or on any cluster that one can connect to."""

from __future__ import annotations

from ncarl.dask_engine.arrays import completed_dask
from ncarl.dask_engine.engine import Dask
from ncarl.dask_engine.link import LostWorkersError

__all__ = ["Dask", "LostWorkersError", "completed_dask"]
