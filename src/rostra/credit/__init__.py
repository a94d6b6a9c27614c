"""Rewards to tokens, pure numpy: spans, streams, datums."""
