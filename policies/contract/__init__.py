"""What every policy and its callers agree on: nouns, the class to derive, hint keys, settings."""
