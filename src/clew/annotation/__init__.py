"""Annotations: which of them to draw, and what to ask next."""
