"""Which engines do which work, when their times may be compared, and what came of it."""
