"""Maintenance of the store: gc, fsck, repacking, the git index, progress and health."""
