"""Combine the events of all frame pairs into tracks."""
