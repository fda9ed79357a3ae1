"""From pixels to detections: label images are measured once, frame by frame, and kept in a cache."""
