"""Work beside the plan: gc, fsck, repacking, progress and health."""
