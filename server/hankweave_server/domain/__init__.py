"""Pure decisions: no await, no clock, no file. Facts come in as arguments, values go out."""
