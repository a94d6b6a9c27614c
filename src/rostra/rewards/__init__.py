"""Transcripts to rewards to advantages, pure numpy."""
