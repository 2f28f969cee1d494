# Hankweave in a container: see docs/how-to/docker.md.
#
#   docker build -t hankweave .                           the server alone, with its example
#   docker build -t hankweave-claude --target claude .    with Claude Code

ARG BASE=docker.io/library/python:3.12-slim-bookworm

FROM ${BASE} AS wheel
# The compiler is for the helpers in C; it stays in this stage.
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev
WORKDIR /source
COPY pyproject.toml constraints.txt hatch_build.py README.md LICENSE ./
COPY protocol protocol
COPY server server
COPY examples/earthquakes examples/earthquakes
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .
# Without pip, byte code and tests: the first two are of no use later, and the last of none at all.
ARG EXTRAS=acp,llm,mcp,notify,otel
RUN python -m venv --without-pip /opt/hankweave \
    && pip --python /opt/hankweave/bin/python install --no-cache-dir --no-compile \
        -c constraints.txt "$(echo /wheel/*.whl)[$EXTRAS]" \
    && find /opt/hankweave -type d -name tests -prune -exec rm -r {} +

FROM wheel AS claude-code
RUN pip --python /opt/hankweave/bin/python install --no-cache-dir --no-compile \
        -c constraints.txt claude-agent-sdk --target /tmp/sdk --no-deps \
    && install -D "$(find /tmp/sdk -name claude -type f)" /opt/claude/claude

FROM ${BASE} AS server
# tini is process 1: it passes signals on, and reaps processes whose parents have ended.
RUN apt-get update \
    && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
# The owner of the files in a mounted project; build with your own if that is another.
ARG USER_ID=1000
RUN useradd --create-home --uid "$USER_ID" hankweave \
    && install -d -o hankweave -g hankweave /executions /state /project \
    && ln -s /opt/hankweave/bin/hankweave /usr/local/bin/
COPY --from=wheel /opt/hankweave /opt/hankweave
COPY examples /opt/hankweave/examples

USER hankweave
WORKDIR /project
# The port is open in the container's network, and the page accepts the address of a port that is
# published on loopback. What is published is decided where the container is started.
ENV HANKWEAVE_RUNTIME_HOST=0.0.0.0 \
    HANKWEAVE_RUNTIME_PORT=7777 \
    HANKWEAVE_RUNTIME_PUBLIC_URL=http://127.0.0.1:7777 \
    HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR=/executions \
    XDG_STATE_HOME=/state \
    PYTHONUNBUFFERED=1
VOLUME /executions /state
EXPOSE 7777
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["/opt/hankweave/bin/python", "-c", "import os, urllib.request as u; u.urlopen(f\"http://127.0.0.1:{os.environ['HANKWEAVE_RUNTIME_PORT']}/readyz\", timeout=4)"]

ENTRYPOINT ["tini", "--", "hankweave"]
CMD ["run", "/opt/hankweave/examples/earthquakes/hank.json", "/opt/hankweave/examples/earthquakes/data", "--no-exit-on-complete"]

FROM server AS claude
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/*
COPY --from=claude-code /opt/claude/claude /usr/local/bin/claude
USER hankweave

FROM server
