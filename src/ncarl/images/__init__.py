"""Image inpainting: fill the missing pixels of gray and color images.

Read in this order: `inpainting` (`inpaint`, from an image and its mask to the filled
image), `patches` (a Gaussian mixture of patches, and the passes that fill an image),
`patches_numpy` and `patches_numba` (kernels on single patches).
"""

from ncarl.images.inpainting import inpaint

__all__ = ["inpaint"]
