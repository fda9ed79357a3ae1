"""Learn tracking weights from annotated events."""
