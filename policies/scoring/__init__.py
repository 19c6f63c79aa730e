"""What a set of GPUs is worth: objectives, tables, rank order, neighbours on a socket."""
