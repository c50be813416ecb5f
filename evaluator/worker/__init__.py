"""The Celery side of a GPU host: takes a job, lets the judge work on it, reports. No Django, no database."""
