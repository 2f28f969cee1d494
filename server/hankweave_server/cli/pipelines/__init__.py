"""Pipelines on the command line: their steps, their run and their report."""
