"""Tracking dividing cells by assignment (section 5 of the paper): detections → candidates → features → lineage.

The names that users write stand here; they are imported when they are first used.
"""

from typing import TYPE_CHECKING

from clew.utils.extras import require_extra
from clew.utils.lazy import import_lazily

if TYPE_CHECKING:
    from clew.tracking.detections import DetectionTable
    from clew.tracking.evaluation.evaluate import evaluate
    from clew.tracking.events import Annotations, Event, EventTable
    from clew.tracking.io.annotations import read_annotations
    from clew.tracking.io.results import write_results
    from clew.tracking.lineage.lineage import Lineage
    from clew.tracking.movie import Movie, open_movie
    from clew.tracking.tracker import Tracker

require_extra("tracking", "clew.tracking")

# By module of clew.tracking. Annotation is a layer above: it is imported when asked for.
_HOMES = {
    "Annotations": ".events",
    "DetectionTable": ".detections",
    "Event": ".events",
    "EventTable": ".events",
    "Lineage": ".lineage.lineage",
    "Movie": ".movie",
    "Tracker": ".tracker",
    "annotate": "clew.annotation.notebook",
    "evaluate": ".evaluation.evaluate",
    "open_movie": ".movie",
    "read_annotations": ".io.annotations",
    "write_results": ".io.results",
}

__all__ = [
    "Annotations",
    "DetectionTable",
    "Event",
    "EventTable",
    "Lineage",
    "Movie",
    "Tracker",
    "annotate",
    "evaluate",
    "open_movie",
    "read_annotations",
    "write_results",
]

__getattr__, __dir__ = import_lazily(__name__, _HOMES)
