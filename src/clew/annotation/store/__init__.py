"""The annotations of one movie in one SQLite file, with their whole history: undo, redo, who answered when."""
