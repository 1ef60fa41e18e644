"""Extra parametrized tests of each patch, kept out of the patches.

``cases/NNNN/test_*.py`` belong to patch NNNN of every series. They are joined
to the patch as if its patch added and named them, so that they too must be red
without it, or under one of its controls, and green with the series. Controls that
only these tests notice stand in ``cases/NNNN/controls``; each release takes those that
were written for its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from dspark_patches.model import patch_file as patch_files
from dspark_patches.model import series
from dspark_patches.model.diff import render_add
from dspark_patches.model.releases import Release

CASES = Path(__file__).parent / "cases"


def load(release: Release) -> series.Series:
    """A release's series, each patch joined by its extra tests."""
    loaded = series.load(release)
    patches = tuple(_join(loaded, patch) for patch in loaded.patches)
    return msgspec.structs.replace(loaded, patches=patches)


def _join(loaded: series.Series, patch: series.Patch) -> series.Patch:
    files = sorted((CASES / f"{patch.number:04d}").glob("test_*.py"))
    if not files:
        return patch
    paths = [f"test/extra/{file.parent.name}/{file.name}" for file in files]
    sections = [render_add(p, f.read_bytes()) for p, f in zip(paths, files)]
    patch_file = msgspec.structs.replace(
        patch.file,
        sections=(*patch.file.sections, *sections),
        trailers=(*patch.file.trailers, *(("Regression-Test", p) for p in paths)),
    )
    controls = (*patch.controls, *_controls(loaded, patch.number))
    return msgspec.structs.replace(patch, file=patch_file, controls=controls)


def _controls(loaded: series.Series, number: int) -> Iterator[series.Control]:
    paths = sorted((CASES / f"{number:04d}" / "controls").glob("*.diff"))
    blobs = series.blobs_after(loaded, number)
    fits = False
    for path in paths:
        why, sections = patch_files.parse_control(path.read_bytes(), path.name)
        if all(blobs.get(s.path, s.old) == s.old for s in sections):
            fits = True
            yield series.Control(
                number=number, name=path.stem, why=why, sections=sections
            )
    assert fits or not paths, f"no control in {paths[0].parent} fits {loaded.release}"
