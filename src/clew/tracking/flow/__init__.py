"""Estimate how cells move between two frames."""
