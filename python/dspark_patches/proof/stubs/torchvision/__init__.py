"""An import-level stand-in for torchvision.

SGLang and transformers import torchvision early, for images that no test here
touches, and no CPU build of it matches the pinned torch. It stands on the
module path only where no real torchvision is installed.
"""

from . import io as io
from . import ops as ops
from . import transforms as transforms

__version__ = "0.0.0+standin"
