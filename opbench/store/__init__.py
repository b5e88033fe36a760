"""The durable memory of the workbench: SQLAlchemy on SQLite (WAL) or PostgreSQL."""
