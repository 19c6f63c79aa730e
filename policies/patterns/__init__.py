"""Which ranks of an application talk to which: named patterns, and those read from files."""
