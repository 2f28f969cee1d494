"""What each command of a client does."""
