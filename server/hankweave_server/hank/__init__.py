"""Loading and checking hank.json."""
