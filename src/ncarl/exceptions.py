"""Errors and warnings of the package."""

from __future__ import annotations

import numpy as np


class NotPositiveDefiniteError(np.linalg.LinAlgError):
    """A kernel block could not be factorized, even with jitter on its diagonal."""


class DeviceMemoryError(MemoryError):
    """The kernel does not fit into the memory of a device, whatever the batch size."""


class BrokenFileError(ValueError):
    """A data, model or checkpoint file is foreign, truncated or damaged."""


class CheckpointError(OSError):
    """A checkpoint could not be written; the previous one is untouched."""


class CheckpointMismatchError(ValueError):
    """A checkpoint belongs to other data or other parameters."""


class NumericalWarning(RuntimeWarning):
    """A numerical problem was repaired, such as a nearly singular block."""


class KernelMemoryError(MemoryError):
    """The kernel is larger than the memory of the machine."""


class DataNotFoundError(FileNotFoundError):
    """A data set was not found in any of the folders searched."""


class TermsNotAcceptedError(DataNotFoundError):
    """A data set could be downloaded, but its terms were not accepted."""


class DownloadError(OSError):
    """A download failed, or its content is not the expected one."""
