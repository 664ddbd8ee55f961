"""The proxy between browsers and the apps inside instances; ``http/apps.py`` has its routes."""
