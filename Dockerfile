# The container image: the daemon and nothing else.
#
# `cargo xtask image` builds it and writes an OCI archive. With another builder:
#   cargo xtask image --binary-only
#   docker build --build-arg VERSION=0.1.0 --tag capstan:0.1.0 .
#
# No shell, no libraries, no users: what is not there can't be turned against anybody. No root certificates either: the API
# server's come with the service account or the kubeconfig, and for the hosts that components may connect to, Mozilla's are in
# the binary; SSL_CERT_FILE names others.
FROM scratch

# Set by the builder: amd64, arm64. A binary for another machine is then missing instead of wrong.
ARG TARGETARCH
COPY target/image/${TARGETARCH}/capstan /capstan

# Where whoever runs the image mounts things: manifests with their components, and a folder that the daemon can write to. It
# makes the folder below by itself, because compiled code is kept only where nobody else can write. The port is for the pod's
# probes and metrics, which come from outside of it, by IPv4 or IPv6. Huge pages would make an idle daemon 13 MiB bigger.
ENV CAPSTAN_MANIFESTS=/etc/capstan/operators \
    CAPSTAN_CODE_CACHE=/var/cache/capstan/code \
    CAPSTAN_LISTEN=[::]:8080 \
    CAPSTAN_ADDRESS=127.0.0.1:8081 \
    MIMALLOC_ALLOW_THP=0
EXPOSE 8080

# As a number, so that Kubernetes can see that it is not root.
USER 65532:65532
ENTRYPOINT ["/capstan"]
CMD ["run"]

ARG VERSION=unknown
LABEL org.opencontainers.image.title="Capstan" \
      org.opencontainers.image.description="A Kubernetes operator daemon that runs reconcilers as sandboxed WebAssembly components" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/capstan-dev/capstan" \
      org.opencontainers.image.version="${VERSION}"
