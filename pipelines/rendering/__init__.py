"""Text out of Jinja2 templates."""
