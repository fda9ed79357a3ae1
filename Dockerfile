# The clew command and its annotation page. docs/container.md says how to build and run it.
FROM python:3.13-slim AS build
WORKDIR /build
COPY pyproject.toml README.md LICENSE CHANGELOG.md CITATION.cff SECURITY.md ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /dist .

FROM python:3.13-slim
COPY --from=build /dist /dist
COPY requirements-dev.lock /dist/
# the lock file has the versions
# hadolint ignore=DL3013
RUN wheel="$(echo /dist/*.whl)" \
    && pip install --no-cache-dir --constraint /dist/requirements-dev.lock "${wheel}[page,dask]" \
    && rm -r /dist \
    && useradd --uid 1000 --create-home clew \
    && mkdir /data /cache \
    && chown clew:clew /data /cache
# compiled code goes to /cache; the rest of the file system may be read-only
ENV NUMBA_CACHE_DIR=/cache/numba \
    XDG_CACHE_HOME=/cache \
    MPLCONFIGDIR=/cache/matplotlib \
    PYTHONDONTWRITEBYTECODE=1
USER 1000
WORKDIR /data
VOLUME ["/data", "/cache"]
ENTRYPOINT ["clew"]
CMD ["--help"]
