"""The single writer: state, journal and published events change here, in one order."""
