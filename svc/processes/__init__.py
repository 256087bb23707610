"""The processes of one server: one that supervises, and those that serve; how they speak, and how they are replaced."""
