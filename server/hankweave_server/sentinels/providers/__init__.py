"""Models that sentinels ask."""
