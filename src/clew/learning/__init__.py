"""Learning from partial annotations (sections 3 and 4 of the paper)."""
