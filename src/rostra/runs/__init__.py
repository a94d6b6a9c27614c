"""What is kept on disk: configuration and transcripts."""
