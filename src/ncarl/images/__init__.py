"""Pictures: missing pixels filled in.

>>> import numpy as np
>>> from ncarl.images import inpaint
>>> picture = np.full((4, 5), 7, dtype=np.uint8)
>>> inpaint(picture, mask=np.eye(4, 5, dtype=bool)).tolist() == picture.tolist()
True
"""

from ncarl.images.inpainting import inpaint

__all__ = ["inpaint"]
