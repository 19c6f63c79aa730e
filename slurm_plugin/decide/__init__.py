"""One decision: what a job wishes, which machines there are, what a policy gives it."""
