"""Statements that several stores share."""
