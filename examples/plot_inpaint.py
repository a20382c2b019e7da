"""
Images: missing pixels
======================

Half of the pixels of a photograph are missing, or it has scratches. Missing pixels
are predicted from the image itself: the distribution of its small patches is learned,
and missing pixels are imputed from the patches around them. Observed pixels are kept.

The photographs come with scikit-learn: *china* by danielbuechele and *flower* by
vultilion, both CC BY 2.0.
"""

# %%
# Half of the pixels
# ------------------
# A mask is True where a pixel is missing. Here the missing pixels are random.

import matplotlib.pyplot as plt
import numpy as np

from ncarl import masks
from ncarl.datasets import load_sample_image
from ncarl.images import inpaint
from ncarl.metrics import psnr

photo = load_sample_image("china", gray=False, step=10)
lost = masks.random(photo.shape[:2], 0.5)
filled, std = inpaint(photo, lost, return_std=True)


def show(panels):
    """Draw images side by side."""
    _, axes = plt.subplots(1, len(panels), figsize=(9, 2.4), layout="constrained")
    for ax, (title, picture) in zip(axes, panels.items(), strict=True):
        ax.imshow(picture, cmap="magma")
        ax.set_title(title, fontsize=10)
        ax.set_axis_off()


seen = np.where(lost[:, :, None], 1.0, photo)
show({"before": seen, f"after: {psnr(photo, filled):.1f} dB": filled, "truth": photo})

# %%
# Standard deviations
# -------------------
# ``return_std=True`` also returns the standard deviations of imputed pixels. They are
# small in the sky and large on roofs and leaves, and so are the errors.

error = np.abs(filled - photo).mean(axis=2)
show({"standard deviations": std.mean(axis=2), "errors": error})

# %%
# Scratches and a hole
# --------------------
# A mask may have any shape. A wide hole is imputed from its rim inward: smooth regions
# are continued, but details in its middle cannot be recovered.

flower = load_sample_image("flower", gray=False, step=10)
height, width = flower.shape[:2]
y, x = np.mgrid[:height, :width]
scratched = (np.abs(y - 0.5 * x - 5) < 1) | (np.abs(x + 0.3 * y - 42) < 1)
scratched[25:34, 14:23] = True
repaired = inpaint(flower, scratched)
seen = np.where(scratched[:, :, None], 1.0, flower)
show({"before": seen, "after": repaired, "truth": flower})
