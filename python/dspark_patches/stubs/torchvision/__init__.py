"""An import-level stand-in for torchvision.

SGLang and transformers import torchvision early, for images that no test here
touches, and no CPU build of it matches the pinned torch. It stands last on the
module path, and only where no real torchvision is installed.
"""

__version__ = "0.0.0+standin"
