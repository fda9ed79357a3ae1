"""Simulated movies of dividing cells, one module per kind of cells."""
