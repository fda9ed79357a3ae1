"""Properties of a whole movie, measured before it is tracked."""
