"""How the pictures look."""

from ..proof import PATCHED, PRISTINE
from .figures import COST_REFERENCE

# Told apart by those who do not tell red from green, and on grey paper.
COLOURS = {PRISTINE: "#d55e00", PATCHED: "#0072b2", COST_REFERENCE: "#777777"}
LABELS = {PRISTINE: "as released", PATCHED: "patched"}
QUIET = "#555555"
WIDTH = 8.6
STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 100,
    "figure.titlesize": 12,
    "font.size": 10,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    # A PNG that is shown at twice the density stays sharp.
    "savefig.dpi": 160,
    # The same bytes each time.
    "svg.hashsalt": "dspark-patches",
}
