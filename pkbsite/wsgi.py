"""Entry point for gunicorn: ``gunicorn pkbsite.wsgi``."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pkbsite.settings")
application = get_wsgi_application()
