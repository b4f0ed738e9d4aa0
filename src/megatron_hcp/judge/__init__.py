"""What the rules mean for one launch: findings, the verdict (undecided, presumed), fixes that were tried, patches."""
