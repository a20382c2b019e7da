"""Errors and warnings that a user may want to catch by name."""

from __future__ import annotations

import numpy as np


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A kernel block could not be factorised, even with jitter on its diagonal."""


class DeviceMemoryError(MemoryError):
    """The kernel does not fit into the memory of a device, whatever the batches."""


class BrokenFileError(ValueError):
    """A model or checkpoint file is foreign, truncated or damaged."""


class CheckpointError(OSError):
    """A checkpoint could not be written; the one before it is untouched."""


class CheckpointMismatchError(ValueError):
    """A checkpoint belongs to other data or other parameters."""


class NumericalWarning(RuntimeWarning):
    """Something was repaired on the way, such as a near-singular block."""


class KernelMemoryError(MemoryError):
    """A kernel that is larger than the memory of the machine."""
