"""From detections to events: candidates between two frames, their features, and the best consistent choice."""
