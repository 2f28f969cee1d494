"""New executions from a checkpoint of another one."""
