"""The dashboard: a file a view in `views/`, what they share in `shared/`."""
