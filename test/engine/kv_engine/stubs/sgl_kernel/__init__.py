"""Stands for kernels of which no wheel is for a CPU: every name, in any submodule.

As upstream's own ``maybe_stub_sgl_kernel``; but a server's processes import the
kernels before anyone could call that.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import Any
from unittest.mock import MagicMock


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname.startswith("sgl_kernel."):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def exec_module(self, module: Any) -> None:
        module.__getattr__ = __getattr__


sys.meta_path.insert(0, _Submodules())
