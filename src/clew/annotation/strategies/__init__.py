"""What is worth asking about: one idea in one file."""
