"""What a site is measured or seen to be: its nodes, links and marks, its jobs' times and speeds."""
