"""Helpers that the other packages share: validation, files, locks, progress."""
