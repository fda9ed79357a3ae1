"""The report of a lineage, an HTML page, and its figures."""

from clew.tracking.report.figures import (
    WeightRow,
    make_weight_rows,
    plot_events,
    plot_lineage,
    plot_weights,
)
from clew.tracking.report.page import make_report

__all__ = [
    "WeightRow",
    "make_report",
    "make_weight_rows",
    "plot_events",
    "plot_lineage",
    "plot_weights",
]
