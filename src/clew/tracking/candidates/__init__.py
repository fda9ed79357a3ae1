"""Candidate events between two frames and their features."""
