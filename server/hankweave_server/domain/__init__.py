"""Pure decisions: no await, no clock, no I/O. Facts come in as arguments, values go out."""
