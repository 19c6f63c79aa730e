"""What every policy is asked and answers; GPU sets as bit masks; jobs whose shape is chosen."""
