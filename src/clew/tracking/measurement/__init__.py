"""From pixels to detections: measure label images and cache the measurements."""
