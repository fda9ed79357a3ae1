"""Tracking dividing cells by assignment (section 5 of the paper): detections → candidates → features → lineage."""
