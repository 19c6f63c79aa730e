"""GENIE live: jobs get their shape at submit, and run in the order in which deadlines hold."""
