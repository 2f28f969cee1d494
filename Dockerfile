# The same server as ./scripts/run, for a container: non-root, one volume, tini as pid 1.
FROM python:3.12-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends tini git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 hankweave \
    && install -d -o hankweave -g hankweave /executions

WORKDIR /opt/hankweave
COPY pyproject.toml constraints.txt hatch_build.py README.md LICENSE ./
COPY protocol protocol
COPY server server
COPY examples examples
# The compiler is for the one helper in C, and goes again with the layer that brought it.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && pip install --no-cache-dir -c constraints.txt . \
    && apt-get purge -y --auto-remove gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*

USER hankweave
ENV HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=/executions \
    PYTHONUNBUFFERED=1
VOLUME /executions

# The server listens on loopback inside the container; the check runs there too.
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:7777/readyz', timeout=4)"]

ENTRYPOINT ["tini", "--", "hankweave"]
CMD ["run", "examples/earthquakes/hank.json", "examples/earthquakes/data", "--port", "7777", "--no-exit-on-complete"]
