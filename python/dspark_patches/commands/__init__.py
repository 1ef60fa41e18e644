"""The verbs, one module each; every module has one click command, ``command``."""
