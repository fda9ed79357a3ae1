"""Find the best consistent set of events and the margin of each event."""
