"""Tables, sessions, migrations, and one query module per resource; returns domain objects, never rows."""
