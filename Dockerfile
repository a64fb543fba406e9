# syntax=docker/dockerfile:1
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY hsparse hsparse
# The versions of requirements.lock, of which each file has a known hash; what builds the package is among them.
RUN python -m venv /opt/hsparse \
    && /opt/hsparse/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements.lock \
    && /opt/hsparse/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation .

FROM python:3.12-slim
RUN groupadd --gid 10001 hsparse \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin hsparse \
    && install --directory --owner=hsparse --group=hsparse /data \
    && install --directory --owner=hsparse --group=hsparse --mode=0700 /users
COPY --from=build /opt/hsparse /opt/hsparse
ENV PATH=/opt/hsparse/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that Kubernetes can see that it is not root.
USER 10001:10001
WORKDIR /data
EXPOSE 5101
STOPSIGNAL SIGTERM
ENTRYPOINT ["hsparse"]
# Everything in /data; listens beyond the container only with a password file, so give HSPARSE_PASSWORD_FILE: a file in
# /users, whose folder is bound and not the file.
CMD ["serve", "--host", "0.0.0.0", "--root", "/data"]
