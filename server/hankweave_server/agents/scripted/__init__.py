"""The scripted agent, for the demo and for tests."""
