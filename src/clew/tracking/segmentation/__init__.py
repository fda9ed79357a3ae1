"""Find cells in raw images: label images for movies that have none."""

from clew.tracking.segmentation.detect import DetectionResult, write_detections
from clew.tracking.segmentation.methods import METHODS, load_method
from clew.tracking.segmentation.threshold import (
    DetectionSettings,
    detect_frame,
    fit_settings,
)

__all__ = [
    "METHODS",
    "DetectionResult",
    "DetectionSettings",
    "detect_frame",
    "fit_settings",
    "load_method",
    "write_detections",
]
