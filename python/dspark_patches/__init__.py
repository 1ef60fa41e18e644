"""A patch series for released SGLang versions, and the proof that it works."""

__version__ = "0.1.0"
