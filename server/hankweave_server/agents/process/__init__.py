"""Agent processes: started below a keeper, read, signalled and cleaned up."""
