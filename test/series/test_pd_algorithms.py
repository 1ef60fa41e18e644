"""The README's table of algorithms after a PD handoff is what the code does."""

from __future__ import annotations

import pd_table


def test_table_is_up_to_date():
    assert pd_table.TABLE.read_text(encoding="utf-8") == pd_table.render(
        pd_table.measure_all()
    ), f"run `python {pd_table.__file__}`"
