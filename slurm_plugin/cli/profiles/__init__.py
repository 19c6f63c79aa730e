"""`gputopo profile`: how fast jobs run on which shape, measured, fitted and shown."""
