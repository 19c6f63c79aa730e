"""What runs on the nodes, as the job's user: donors' servers, the relay, the echo pair.

Standard library only: `gputopo remote program` packs it into one file for the nodes.
"""
