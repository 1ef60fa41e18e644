"""Stand-in: see the package."""

from .. import InterpolationMode  # noqa: F401
from ..._absent import resolver

__getattr__ = resolver(__name__)
