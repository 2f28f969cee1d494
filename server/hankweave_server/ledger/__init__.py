"""The one writer: state, journal and what is told to clients move here, in one order."""
