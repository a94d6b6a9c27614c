"""The loops: self-play, warm start."""
