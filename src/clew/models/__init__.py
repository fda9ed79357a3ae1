"""Structured outputs: features, task loss, and the argmax in Y, Y* and Y°."""
