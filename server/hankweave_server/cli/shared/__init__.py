"""What several commands share: targets, settings, and how a hank is loaded."""
