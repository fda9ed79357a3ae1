"""The napari plugin: readers, a writer, sample data and the annotation dock."""
