# Two images from one checkout:
#   docker build --target web    -t pkbsite-web .      web host: pages, recording of results, beat. No torch, no compiler.
#   docker build --target worker -t pkbsite-worker .   GPU host: the judge. No Django, no database driver.
# docs/operations.md says how they are run; docker-compose.yml does it.

FROM python:3.11-slim AS web-packages
COPY requirements/web.txt /tmp/requirements.txt
RUN python -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir --requirement /tmp/requirements.txt

FROM python:3.11-slim AS web
RUN useradd --create-home --uid 10001 pkb && install --directory --owner pkb --group pkb /data
COPY --from=web-packages /opt/venv /opt/venv
WORKDIR /srv/pkbsite
COPY . .
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PKB_DATA=/data
# The files are the same for every site, so they are collected once; the key is thrown away and signs nothing.
RUN SECRET_KEY="$(python -c 'import secrets; print(secrets.token_urlsafe(48))')" python manage.py collectstatic --no-input
USER pkb
VOLUME /data
EXPOSE 8000
# Of the container that serves pages; docker-compose.yml switches it off for the others, which serve none.
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:8000/healthz', timeout=4)"]
CMD ["python", "-m", "gunicorn", "pkbsite.wsgi", "--bind", "0.0.0.0:8000"]

# The compiler (nvcc) belongs to the judge: submissions in CUDA are built here. Choose a toolkit that the host's driver
# supports and the torch that was built for it: docker build --build-arg CUDA=... --build-arg TORCH=...
ARG CUDA=13.0.1-devel-ubuntu24.04
FROM nvidia/cuda:${CUDA} AS worker
ARG TORCH=torch==2.13.0
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ ninja-build python3-dev python3-venv util-linux \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/worker.txt /tmp/requirements.txt
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir "${TORCH}" \
    && /opt/venv/bin/pip install --no-cache-dir --requirement /tmp/requirements.txt
RUN useradd --create-home --uid 10001 pkb
WORKDIR /srv/pkbsite
COPY evaluator evaluator
COPY problems/__init__.py problems/__init__.py
COPY problems/suite problems/suite
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1
# As an ordinary user bubblewrap opens a user namespace; as root it would have to give up root first.
USER pkb
# Can this host still evaluate: sandbox, devices, compiler.
HEALTHCHECK --interval=5m --timeout=60s --start-period=60s CMD ["python", "-m", "evaluator", "doctor"]
CMD ["python", "-m", "evaluator", "doctor"]
