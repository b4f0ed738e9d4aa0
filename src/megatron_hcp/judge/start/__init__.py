"""What upstream's own start-up makes of a launch: its guards as findings, and what hidden settings leave open."""
