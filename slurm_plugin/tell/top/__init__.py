"""`gputopo top`: the page of `gputopo web` for those who never leave the terminal.

`screen` turns the page's view into lines, `terminal` shows them and takes keys. What is read, who
may see what, and each waiting job's reason are slurm_plugin.tell.web's.
"""
