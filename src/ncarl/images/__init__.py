"""Image inpainting: fill the missing pixels of gray and color images.

Read in this order: `inpainting` (`inpaint`, from an image and its mask to the filled
image), `patches` (a Gaussian mixture of patches, and the passes that fill an image),
`patches_numpy` and `patches_numba` (kernels on single patches).

>>> import numpy as np
>>> from ncarl.images import inpaint
>>> picture = np.full((4, 5), 7, dtype=np.uint8)
>>> inpaint(picture, mask=np.eye(4, 5, dtype=bool)).tolist() == picture.tolist()
True
"""

from ncarl.images.inpainting import inpaint

__all__ = ["inpaint"]
