"""Agents that speak the Agent Client Protocol, through a bridge process."""
