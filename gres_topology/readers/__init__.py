"""What tools print about a node, one reader for each format; `reading` tells which it is."""
