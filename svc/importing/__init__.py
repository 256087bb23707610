"""Moving in from another server: its inventory, the plan to make that here, the load, and the comparison of both."""
