"""The rules of debate, pure: what may be said, by whom, who sees it, and what it counts for."""
