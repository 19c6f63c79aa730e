"""Which ranks of an application talk to which: by name, from a file, from measured traffic."""
