"""A movie in blocks of frames: each is solved on its own, in threads or on a cluster, and joined at its borders."""
