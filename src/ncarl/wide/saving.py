"""A model with a wide kernel as a saved file holds it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np

from ncarl.core.types import Array, Kernel
from ncarl.model import KernelModel
from ncarl.saving import model_state, restored_model
from ncarl.wide.keeping import kernel_from, kernel_parts

#: Everything but the kernel is kept as other kernel models keep it.
NO_KERNEL = Kernel(np.zeros((0, 0)), None, 0.0)


def model_parts(model: KernelModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """A model as what JSON can hold, and arrays."""
    header, arrays = model_state(replace(model, kernel=NO_KERNEL))
    del arrays["K"]
    own, factors = kernel_parts(cast(Any, model.kernel))
    return {**header, **own}, {**arrays, **factors}


def model_from(header: dict[str, Any], arrays: dict[str, Array]) -> KernelModel:
    """The model that `model_parts` described."""
    other = restored_model(header, {**arrays, "K": NO_KERNEL.K})
    return replace(other, kernel=cast(Any, kernel_from(header, arrays)))
