"""What all other rooms stand on: files, messages, what AdminComment keeps of a job.

Of the parts that need the standard library alone, and of `node`, the nodes' program is made.
"""
