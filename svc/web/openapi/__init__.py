"""The interface as an OpenAPI document, generated from the routes' declarations, and a page that shows it."""
