"""Driving the plan: one codon after the other."""
