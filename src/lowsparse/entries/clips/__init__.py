"""Sources of frames: array files, folders of pictures, and what PyAV opens; `entries.frames` chooses among them."""
