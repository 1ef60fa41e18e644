"""``python -m dspark_patches``."""

from .cli import entry_point

entry_point()
