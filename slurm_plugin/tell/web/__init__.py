"""`gputopo web`: the site's nodes, jobs and decisions as a page that looks and never acts.

`feed` reads Slurm once for all who look (`sources`), makes a `view` of it with the waiting jobs'
`reasons`, and sends each kind of viewer what changed. `server` answers browsers, `identity` knows
who asks, `clients` bounds what one of them may do. `decisions` follows the decision log, `details`
tells of one job or node, `gain` sums the log up, `free_week` has the free GPUs of a week,
`utilisation` how busy GPUs are. `demo` plays a recorded day. aiohttp and Jinja2
(extra `web`) are imported here alone.
"""
