"""How many GB/s a pattern gets on a set of GPUs: by MAPA's model, a general one, or as measured."""
