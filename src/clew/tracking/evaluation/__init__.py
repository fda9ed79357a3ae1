"""How good a lineage is: what the truth says of a movie's detections, events missed, divisions, AOGM."""
