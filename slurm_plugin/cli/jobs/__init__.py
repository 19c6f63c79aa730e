"""Commands about one job: what it may ask for, what it would get, why it got what it has."""
