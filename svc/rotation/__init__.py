"""Values that end and values that are rotated: the loop that sees to them, and how new passwords are put in force."""
