"""The ground: tokens are made and weights change here; nothing is known of debates."""
