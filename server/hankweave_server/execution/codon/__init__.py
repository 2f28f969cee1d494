"""One codon, from its rig to its last checkpoint."""
