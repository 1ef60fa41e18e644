"""Put the code of a mutated file into the functions of a running process."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

# Names a function's code as well in a process as in a file that is compiled anew.
Key = tuple[str, str, int]


class NotSwappable(Exception):
    """Something else than the body of a function that exists has changed."""


def key(code: CodeType) -> Key:
    """The function's file, name and first line."""
    return code.co_filename, code.co_name, code.co_firstlineno


def live(files: set[str]) -> dict[Key, list[FunctionType]]:
    """Every function of these files."""
    found: dict[Key, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in files:
            found.setdefault(key(each.__code__), []).append(each)
    return found


class Changed:
    """The functions that differ between two versions of a file.

    Attributes:
        own: the old code of those whose own body differs.

    Args:
        functions: those of this process, as :func:`live` finds them.

    Raises:
        NotSwappable: code of the module or of a class differs as well, or a
            function does not exist.
    """

    def __init__(
        self, old: CodeType, new: CodeType, functions: dict[Key, list[FunctionType]]
    ) -> None:
        self.own: list[CodeType] = []
        self._functions = functions
        self._swaps: list[tuple[FunctionType, CodeType]] = []
        self._outside(old, new)

    def swap(self) -> None:
        """Change the functions of this process."""
        for function, code in self._swaps:
            function.__code__ = code

    def _outside(self, old: CodeType, new: CodeType) -> None:
        """Compare the code of a module or class."""
        inner = [*_nested(old)], [*_nested(new)]
        names = [[code.co_name for code in codes] for codes in inner]
        if _own(old) != _own(new) or names[0] != names[1]:
            raise NotSwappable
        for pair in zip(*inner):
            if not pair[0].co_flags & inspect.CO_OPTIMIZED:
                self._outside(*pair)
                continue
            known = len(self.own)
            pairs = [*self._inside(*pair)]
            if len(self.own) > known:
                self._swap(pairs)

    def _swap(self, pairs: list[tuple[CodeType, CodeType]]) -> None:
        if key(pairs[0][0]) not in self._functions:
            raise NotSwappable
        for old, new in pairs:
            for function in self._functions.get(key(old), ()):
                if old.co_freevars != new.co_freevars:
                    raise NotSwappable
                self._swaps.append((function, new))

    def _inside(self, old: CodeType, new: CodeType) -> Iterator[tuple]:
        """The functions in a function, itself first."""
        yield old, new
        inner = [*_nested(old)], [*_nested(new)]
        names = [[code.co_name for code in codes] for codes in inner]
        if _own(old) != _own(new) or names[0] != names[1]:
            self.own.append(old)
        if names[0] == names[1]:
            for pair in zip(*inner):
                yield from self._inside(*pair)


def _nested(code: CodeType) -> Iterator[CodeType]:
    return (each for each in code.co_consts if isinstance(each, CodeType))


def _own(code: CodeType) -> tuple:
    """What a function does, wherever it stands, but for the functions in it."""
    constants = [
        "code" if isinstance(each, CodeType) else (type(each), repr(each))
        for each in code.co_consts
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    counts = code.co_argcount, code.co_kwonlyargcount, code.co_flags
    handlers = getattr(code, "co_exceptiontable", b"")
    return code.co_code, constants, names, counts, handlers
