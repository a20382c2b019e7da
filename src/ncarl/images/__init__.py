"""Image inpainting: fill the missing pixels of gray and color images.

Files in reading order:

- ``inpainting.py``: `inpaint`, from an image and its mask to the filled image;
- ``patches.py``: Gaussian mixture of patches, and the passes that fill an image;
- ``patches_numpy.py``, ``patches_numba.py``: kernels on single patches, in NumPy and
  compiled by Numba.

>>> import numpy as np
>>> from ncarl.images import inpaint
>>> picture = np.full((4, 5), 7, dtype=np.uint8)
>>> inpaint(picture, mask=np.eye(4, 5, dtype=bool)).tolist() == picture.tolist()
True
"""

from ncarl.images.inpainting import inpaint

__all__ = ["inpaint"]
