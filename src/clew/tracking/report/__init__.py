"""What a person looks at after tracking: one HTML page, and the figures in it."""

from clew.tracking.report.figures import (
    WeightRow,
    events_figure,
    weights_figure,
    weights_rows,
)
from clew.tracking.report.page import make_report
from clew.tracking.report.tree import lineage_figure

__all__ = [
    "WeightRow",
    "events_figure",
    "lineage_figure",
    "make_report",
    "weights_figure",
    "weights_rows",
]
