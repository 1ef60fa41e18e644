"""Stand-in: see the package."""

from ..._absent import resolver
from . import functional as functional

__getattr__ = resolver(__name__)
